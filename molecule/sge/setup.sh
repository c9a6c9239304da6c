# Configure and start Grid Engine on a node; $1 is "address name,address name,...".
export _SYSTEMCTL_SKIP_REDIRECT=true # the init scripts start the daemons without units of systemd
grep -v "$(hostname)\$" /etc/hosts >/tmp/hosts
cat /tmp/hosts >/etc/hosts # docker mounts this file, so it cannot be replaced
echo "$1" | tr , '\n' >>/etc/hosts
id mxcluster >/dev/null 2>&1 || # the script runs again after a restart of the node
    useradd --uid 3000 --create-home --shell /bin/bash mxcluster

# await COMMAND: repeat the command until it succeeds, for 5 minutes at most
await() {
    for _ in $(seq 1500); do
        if sh -c "$1" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "after 5 minutes this fails: $1" >&2
    tail -n 20 /var/spool/gridengine/qmaster/messages /tmp/sge_messages.* >&2
    exit 1
}

echo node1 >/var/lib/gridengine/default/common/act_qmaster
if [ "$(hostname)" = node1 ]; then
    chown -R sgeadmin: /var/lib/gridengine/default /var/spool/gridengine
    /etc/init.d/gridengine-master restart
    await 'qconf -sh'
    # The package has made some of these entries, and qconf refuses a second one.
    qconf -sm | grep -qx root || runuser -u sgeadmin -- qconf -am root
    cat >/tmp/pe <<'PE'
pe_name            mpi
slots              99
user_lists         NONE
xuser_lists        NONE
start_proc_args    /bin/true
stop_proc_args     /bin/true
allocation_rule    1
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
PE
    qconf -Ap /tmp/pe
    sed -e 's/^pe_name .*/pe_name fill/' -e 's/^allocation_rule .*/allocation_rule $fill_up/' /tmp/pe >/tmp/fill
    qconf -Ap /tmp/fill
    for node in $(echo "$1" | tr , '\n' | cut -d ' ' -f 2); do
        qconf -sh | grep -qx "$node" || qconf -ah "$node"
        qconf -ss | grep -qx "$node" || qconf -as "$node"
    done
    printf 'group_name @allhosts\nhostlist node1 node2 node3\n' >/tmp/group
    qconf -Ahgrp /tmp/group
    qconf -sq | sed -e 's/^qname .*/qname main.q/' -e 's/^hostlist .*/hostlist @allhosts/' \
        -e 's/^pe_list .*/pe_list mpi fill/' -e 's/^slots .*/slots 4/' -e 's/^load_thresholds .*/load_thresholds NONE/' \
        -e 's/^shell_start_mode .*/shell_start_mode unix_behavior/' >/tmp/queue
    qconf -Aq /tmp/queue
    # Schedule each second; the default is 15 s.
    qconf -ssconf | sed 's/^schedule_interval .*/schedule_interval 0:0:1/' >/tmp/schedule
    qconf -Msconf /tmp/schedule
else
    await 'qconf -sh | grep "$(hostname)"'
fi
/etc/init.d/gridengine-exec restart
