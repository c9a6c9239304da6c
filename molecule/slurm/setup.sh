# Configure and start Slurm on a node; $1 is "address name,address name,...".
echo "$1" | tr , '\n' >>/etc/hosts
systemctl stop munge slurmctld slurmd
id mxcluster >/dev/null 2>&1 || # the script runs again after a restart of the node
    useradd --uid 3000 --create-home --shell /bin/bash mxcluster
head -c 1024 /dev/zero | tr '\0' k >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
cat >/etc/slurm/slurm.conf <<'CONF'
ClusterName=molecule
SlurmctldHost=node1
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=30
KillWait=10
MinJobAge=300
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2
NodeName=node[1-3] CPUs=8 State=UNKNOWN
PartitionName=main Nodes=node[1-3] Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=node1 MaxTime=INFINITE State=UP
CONF
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
chown -R slurm: /var/lib/slurm /var/log/slurm
# tools/node-image.sh disables the units of these daemons, since they have no configuration before.
install -d -o munge -m 755 /run/munge
runuser -u munge -- munged
[ "$(hostname)" != node1 ] || slurmctld
slurmd
