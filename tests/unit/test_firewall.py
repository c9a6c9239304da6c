"""Firewalls, as nft and firewall-cmd print them, and what is asked of them. The real ones: molecule's scenario cluster."""
import json

from mxcluster import firewall
from mxcluster.firewall import Chain

WANTED = {"job": "job-1", "address": "10.0.0.2", "interface": "eth1", "ports": [9091, 9092, 9200],
          "peers": ["10.0.0.1", "10.0.0.3"]}
RULESET = '''table ip nat { # handle 1
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
'''


def test_the_rules_go_where_input_is_filtered():
    chains, rules = firewall.parse_ruleset(RULESET)
    assert chains == [Chain("inet", "filter", "input"), Chain("ip", "old", "INPUT")]
    assert firewall.nft_open(WANTED, chains[:1]) == [
        'insert rule inet filter input ip saddr %s ip daddr 10.0.0.2 tcp dport %s accept comment "mxcluster job-1"' % pair
        for pair in (("10.0.0.1", "9091-9092"), ("10.0.0.1", "9200"), ("10.0.0.3", "9091-9092"), ("10.0.0.3", "9200"))]
    assert firewall.nft_close("job-1", rules) == ["delete rule inet filter input handle 7"]
    assert firewall.nft_close("other", rules) == []


def test_what_is_still_open_is_told():
    rules = firewall.parse_ruleset(RULESET)[1]
    assert firewall.nft_left("job-1", rules) == [
        "the firewall is still open: inet filter input: ip saddr 10.0.0.1 ip daddr 10.0.0.2 tcp dport 9091"]
    assert firewall.nft_left("other", rules) == []


def test_a_wish_that_is_still_there_is_told(tmp_path, monkeypatch):
    """Closing removes it when it has succeeded, also where a firewalld is asked that knows no job's name."""
    monkeypatch.setattr(firewall.shutil, "which", lambda name: None)
    wish = tmp_path / "job-1.json"
    assert firewall.left(str(wish)) == []
    wish.write_text("{}")
    assert firewall.left(str(wish)) == ["the firewall may still be open: %s is there, which says for whom" % wish]


def test_no_firewall():
    assert firewall.parse_ruleset("") == ([], [])


ZONES = '''public (default)
  interfaces: eth0
trusted
  interfaces: eth1
  sources: 10.0.0.3/32 aa:bb:cc:dd:ee:ff
'''


def test_the_zone_of_a_peer():
    zones = firewall.parse_zones(ZONES)
    assert zones == {"public": {"interfaces": ["eth0"], "sources": []},
                     "trusted": {"interfaces": ["eth1"], "sources": ["10.0.0.3/32", "aa:bb:cc:dd:ee:ff"]}}
    assert firewall.zone_of("10.0.0.1", "eth1", zones, "public") == "trusted"
    assert firewall.zone_of("10.0.0.1", "eth0", zones, "public") == "public"
    assert firewall.zone_of("10.0.0.3", "eth0", zones, "public") == "trusted"  # a source counts before an interface
    assert firewall.zone_of("10.0.0.1", "eth9", zones, "work") == "work"


def test_rich_rules():
    rules = firewall.rich_rules(dict(WANTED, interface="eth0"), firewall.parse_zones(ZONES), "public")
    assert sorted(rules) == ["public", "trusted"] and len(rules["public"]) == 2
    assert rules["trusted"] == ['rule family="ipv4" source address="10.0.0.3" destination address="10.0.0.2" port port="%s" '
                                'protocol="tcp" accept' % ports for ports in ("9091-9092", "9200")]


def test_nothing_was_asked_for(tmp_path, capsys):
    assert firewall.main(["close", str(tmp_path / "none.json")]) == 0 and capsys.readouterr().err == ""


def nft(folder, monkeypatch, text):
    """A program `nft` and nothing else on the PATH."""
    (folder / "nft").write_text("#!/bin/sh\n" + text)
    (folder / "nft").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/bin:/usr/bin" % folder)
    monkeypatch.setattr(firewall.shutil, "which", lambda name: str(folder / name) if name == "nft" else None)


def test_an_nft_whose_kernel_has_no_nf_tables_is_no_firewall(tmp_path, monkeypatch, capsys):
    nft(tmp_path, monkeypatch, "echo 'Error: Could not process rule: Operation not supported' >&2; exit 1\n")
    for action in ("open", "close"):
        assert firewall.change(action, WANTED) == {}
        said = capsys.readouterr().err
        assert "nftables counts as not active here: `nft -a list ruleset` ended with status 1: Error" in said


def test_an_old_nft_reads_commands_from_a_file_by_name(tmp_path, monkeypatch):
    (tmp_path / "rules").write_text(RULESET)
    nft(tmp_path, monkeypatch, "if [ \"$1\" = -a ]; then cat %s/rules; else [ \"$2\" != - ] && cat \"$2\" > %s/said; fi\n"
        % (tmp_path, tmp_path))
    firewall.change("close", WANTED)
    assert (tmp_path / "said").read_text() == "delete rule inet filter input handle 7\n"


def test_what_closing_could_not_close_is_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "rules").write_text(RULESET)
    nft(tmp_path, monkeypatch, "if [ \"$1\" = -a ]; then cat %s/rules; fi\n" % tmp_path)
    (tmp_path / "job-1.json").write_text(json.dumps(WANTED))
    for _ in range(2):  # the file is gone the second time
        assert firewall.main(["close", str(tmp_path / "job-1.json")]) == 0
        assert capsys.readouterr().out == (
            "the firewall is still open: inet filter input: ip saddr 10.0.0.1 ip daddr 10.0.0.2 tcp dport 9091\n")
