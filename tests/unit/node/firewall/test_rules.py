"""Commands for the firewall programs, and the parsing of their output.

test_packets.py has the real programs.
"""

import json
import shutil
import signal
import threading

from mxcluster.model.firewall import FirewallRequest
from mxcluster.node import firewall
from mxcluster.node.firewall import firewalld, iptables, nft
from mxcluster.node.firewall.nft import Chain

WANTED = FirewallRequest(
    job="job-1",
    address="10.0.0.2",
    interface="eth1",
    ports=[9091, 9092, 9200],
    peers={"10.0.0.1": [9091], "10.0.0.3": [9091, 9092, 9300]},
    uid=1001,
)
OWN = nft.name("job-1")
RULESET = (
    """table ip nat { # handle 1
\tchain OUTPUT { # handle 2
\t\ttype nat hook output priority -100; policy accept;
\t\tip daddr 127.0.0.11 counter packets 4 bytes 262 jump DOCKER_OUTPUT # handle 3
\t}
}
table inet filter { # handle 2
\tset friends { # handle 9
\t\ttype ipv4_addr
\t\telements = { 10.0.0.9 }
\t}

\tchain input { # handle 1
\t\ttype filter hook input priority filter; policy drop;
\t\tip saddr 10.0.0.1 ip daddr 10.0.0.2 tcp dport 9091 accept comment "mxcluster job-1" # handle 7
\t\tip saddr 10.0.0.1 ip daddr 10.0.0.2 tcp dport 9091 accept comment "mxcluster job-11" # handle 8
\t\tct state established,related accept # handle 2
\t}

\tchain forward { # handle 3
\t\ttype filter hook forward priority filter; policy drop;
\t}
}
table ip6 filter { # handle 3
\tchain input { # handle 1
\t\ttype filter hook input priority 0; policy drop;
\t}
}
table inet firewalld { # handle 4
\tchain filter_INPUT { # handle 1
\t\ttype filter hook input priority filter + 10; policy accept;
\t}
}
table ip old { # the nft of CentOS 7 gives tables no handle
\tchain INPUT {
\t\ttype filter hook input priority 0; policy accept;
\t\ttcp dport ssh accept # handle 4
\t}
}
table ip %s { # handle 7
\tchain peers { # handle 1
\t\tip saddr 10.0.0.1 accept comment "mxcluster job-1" # handle 4
\t}

\tchain input { # handle 2
\t\ttype filter hook input priority -1; policy accept;
\t\tip daddr 10.0.0.2 tcp dport xmltec-xmlmail jump peers comment "mxcluster job-1" # handle 5
\t}
}
"""
    % OWN
)


def test_nft_closes_ports_in_a_table_of_the_job_and_opens_filtering_chains():
    found = nft.parse(RULESET)
    assert found.chains == [Chain("inet", "filter", "input"), Chain("ip", "old", "INPUT")]
    assert found.tables == [OWN] and found.firewalld == "table inet firewalld { # handle 4"
    rules = "\n".join(nft.opening(WANTED, nft.Ruleset([], found.chains[:1], [], None)))
    for rule in (
        "output meta skuid != 0 meta skuid != 1001 jump others",
        "others ip daddr 10.0.0.3 tcp dport 9091-9092 drop",
        "input ip daddr 10.0.0.2 tcp dport 9200 jump peers",
        "insert rule inet filter input ip saddr 10.0.0.3 ip daddr 10.0.0.2 tcp dport 9200 accept",
    ):
        assert rule + ' comment "mxcluster job-1"' in rules, rules
    closing = ["delete table ip " + OWN, "delete rule inet filter input handle 7"]
    # Existing rules are replaced.
    assert nft.closing("job-1", found) == closing == nft.opening(WANTED, found)[:2]
    assert nft.closing("other", found) == []


def test_missing_chains_and_tables_are_named():
    assert nft.missing(WANTED, nft.parse("")) == ["table ip " + OWN]
    tables = ["table inet filter", "table ip " + OWN, "table ip old"]
    assert nft.missing(WANTED, nft.parse(RULESET)) == tables
    alone = WANTED.replaced(ports=[9091], peers={}, uid=None)
    # Rules are counted, since nft may print service names.
    assert nft.missing(alone, nft.parse(RULESET)) == []


LISTED = """-P INPUT DROP
-N INPUT_direct
-N %s
-N %s_o
-A INPUT -d 10.0.0.2/32 -p tcp -m tcp --dport 9091:9092 -m comment --comment "mxcluster job-1" -j %s
-A INPUT -d 10.0.0.2/32 -p tcp -m tcp --dport 9091 -m comment --comment \
"mxcluster job-11" -j mxcluster_0123456789abcdef
-A INPUT -j INPUT_direct
-A %s -s 10.0.0.1/32 -m comment --comment "mxcluster job-1" -j ACCEPT
-A %s_o -d 10.0.0.1/32 -m comment --comment "mxcluster job-1" -j DROP
""".replace("%s", OWN).splitlines()


def test_iptables_gets_two_chains_of_the_job():
    calls = [" ".join(call) for call in iptables.opening(WANTED)]
    mark = " -m comment --comment mxcluster job-1"
    assert calls[0] == "-N " + OWN and calls[3] == "-A %s%s -j DROP" % (OWN, mark)
    assert "-I INPUT 1 -d 10.0.0.2 -p tcp --dport 9091:9092%s -j %s" % (mark, OWN) in calls
    assert "-A %s_o -d 10.0.0.3 -p tcp --dport 9091:9092%s -j DROP" % (OWN, mark) in calls
    assert calls[-1].startswith("-I OUTPUT 1 -p tcp -m owner --socket-exists ! --uid-owner 1001")
    closing = [" ".join(call) for call in iptables.closing("job-1", LISTED)]
    chains = ["-F " + OWN, "-X " + OWN, "-F %s_o" % OWN, "-X %s_o" % OWN]
    assert closing == ["-D" + LISTED[4][2:].replace('"', "")] + chains
    assert len(iptables.left("job-1", LISTED)) == 3
    assert iptables.closing("other", LISTED) == iptables.left("other", LISTED) == []
    assert iptables.is_missing(WANTED, LISTED)


def test_a_remaining_wish_file_is_reported(tmp_path, monkeypatch):
    """A successful close removes the file, also with firewalld, which knows no job names."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    wish = tmp_path / "job-1.json"
    assert firewall.left(str(wish)) == []
    wish.write_text("{}")
    assert firewall.left(str(wish)) == [
        "the job's ports may still be open, because the request file %s still exists: run stop.yml "
        "again for this job" % wish
    ]


ZONES = """public (default)
  interfaces: eth0
trusted
  interfaces: eth1
  sources: 10.0.0.3/32 aa:bb:cc:dd:ee:ff
"""


def test_the_zone_of_a_peer():
    zones = firewalld.parse_zones(ZONES)
    assert zones == {
        "public": {"interfaces": ["eth0"], "sources": []},
        "trusted": {"interfaces": ["eth1"], "sources": ["10.0.0.3/32", "aa:bb:cc:dd:ee:ff"]},
    }
    assert firewalld.zone_of("10.0.0.1", "eth1", zones, "public") == "trusted"
    assert firewalld.zone_of("10.0.0.1", "eth0", zones, "public") == "public"
    assert (
        firewalld.zone_of("10.0.0.3", "eth0", zones, "public") == "trusted"
    )  # a source precedes an interface
    assert firewalld.zone_of("10.0.0.1", "eth9", zones, "work") == "work"


def test_rich_rules_of_each_zone():
    rules = firewalld.rich_rules(
        WANTED.replaced(interface="eth0"), firewalld.parse_zones(ZONES), "public"
    )
    assert sorted(rules) == ["public", "trusted"] and len(rules["public"]) == 2
    assert rules["trusted"] == [
        'rule family="ipv4" source address="10.0.0.3" destination address="10.0.0.2" port '
        'port="%s" '
        'protocol="tcp" accept' % ports
        for ports in ("9091-9092", "9200")
    ]


def test_firewalld_rules_are_removed_from_their_own_zone(monkeypatch):
    """The interface may have another zone at the end of the job."""
    changes, zones = [], iter([{"public": ["a rule"]}, {"trusted": ["a rule"]}])
    monkeypatch.setattr(nft, "ruleset", lambda: None)
    monkeypatch.setattr(iptables, "program", lambda with_nft: None)
    monkeypatch.setattr(firewalld, "runs", lambda: True)
    monkeypatch.setattr(firewalld, "rules_for", lambda request: next(zones))
    monkeypatch.setattr(firewalld, "change", lambda *change: changes.append(change))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        firewall.hold(WANTED, lambda text: None)
    finally:
        signal.sigtimedwait({signal.SIGTERM}, 0)  # an unhandled SIGTERM would end the tests
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert changes == [("open", {"public": ["a rule"]}), ("close", {"public": ["a rule"]})]


def test_close_without_a_wish_file_does_nothing(tmp_path, capsys):
    assert firewall.main(["close", str(tmp_path / "none.json")]) == 0
    assert capsys.readouterr().err == ""


def programs(folder, monkeypatch, **texts):
    """Install these programs into the PATH, beside the system's programs."""
    for name, text in texts.items():
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/bin:/usr/bin" % folder)
    monkeypatch.setattr(shutil, "which", lambda name: str(folder / name) if name in texts else None)
    monkeypatch.setattr(iptables, "LEGACY_TABLES", str(folder / "none"))


def test_an_nft_without_kernel_support_is_no_firewall(tmp_path, monkeypatch):
    programs(
        tmp_path,
        monkeypatch,
        nft="echo 'Error: Could not process rule: Operation not supported' >&2; exit 1\n",
    )
    opened = firewall.open_for(WANTED)
    assert opened == ({}, None, False) and firewall.missing(WANTED, opened) == []
    assert firewall.can() == firewall.CANNOT
    firewall.close_for(WANTED, opened)


def test_an_old_nft_reads_commands_from_a_named_file(tmp_path, monkeypatch):
    (tmp_path / "rules").write_text(RULESET)
    text = 'if [ "$1" = -a ]; then cat %s/rules; else [ "$2" != - ] && cat "$2" > %s/said; fi\n'
    programs(tmp_path, monkeypatch, nft=text % (tmp_path, tmp_path))
    firewall.close_for(WANTED)
    said = "delete table ip %s\ndelete rule inet filter input handle 7\n" % OWN
    assert (tmp_path / "said").read_text() == said


def test_firewalld_on_nftables_is_opened_again_after_a_reload(tmp_path, monkeypatch):
    """The reload creates firewalld's table again without the runtime rules."""
    (tmp_path / "handle").write_text("4")
    tables = (
        '[ "$1" = -a ] && echo "table inet firewalld { # handle $(cat %s/handle)" '
        "|| cat >/dev/null\n"
    )
    zones = (
        "case $1 in --get-active-zones) echo public; echo '  interfaces: eth1';; "
        '--get-default-zone) echo public;; *) echo "$@" >> %s/asked;; esac\n'
    )
    fakes = {"nft": tables % tmp_path, "firewall-cmd": zones % tmp_path}
    programs(tmp_path, monkeypatch, **fakes)
    monkeypatch.setattr(nft, "missing", lambda request, found: [])  # this nft stores no rules
    opened = firewall.open_for(WANTED)
    assert firewall.missing(WANTED, opened) == []
    (tmp_path / "handle").write_text("5")
    assert firewall.missing(WANTED, opened) == ["firewalld"]
    opened = firewall.open_for(WANTED)
    assert firewall.missing(WANTED, opened) == []
    firewall.close_for(WANTED, opened)
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if "rich-rule" in line]
    assert ["--add" in line for line in asked] == [True, True, False]
    assert opened.rich["public"][0] in asked[2]


def test_rules_that_remain_after_close_are_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "rules").write_text(RULESET)
    programs(tmp_path, monkeypatch, nft='if [ "$1" = -a ]; then cat %s/rules; fi\n' % tmp_path)
    (tmp_path / "job-1.json").write_text(json.dumps(WANTED.encode()))
    for _ in range(2):  # the second close has no file
        assert firewall.main(["close", str(tmp_path / "job-1.json")]) == 0
        assert capsys.readouterr().out == (
            "the firewall still has the table ip %s: delete this table with nft\n"
            "the firewall still has the rule `inet filter input ip saddr 10.0.0.1 ip daddr "
            "10.0.0.2 tcp dport 9091`: delete this rule with nft\n" % OWN
        )
