"""Two nodes and a network on one machine: network namespaces joined by a veth pair. Needs root."""

import contextlib
import json
import os
import shutil
import subprocess

from mxcluster.node import processes
from tests.waiting import until

ADDRESSES = {"node1": "10.203.0.1", "node2": "10.203.0.2"}
RULES = """table inet cut {
  chain input {
    type filter hook input priority 0;
    ip saddr %s tcp dport %s drop
  }
}
"""


class Wires:
    """The namespaces, and an inventory whose modules and jobs run in them.

    The connection is local, so faults of the network do not affect Ansible.
    """

    def __init__(self, project, name="wires"):
        own = os.getpid()
        self.holders = {
            host: subprocess.Popen(
                ["unshare", "--net", "sleep", "infinity"],
                preexec_fn=lambda: processes.set_pdeathsig(own),
            )
            for host in ADDRESSES
        }
        self.inventory = project.path / "inventory" / name
        self.state = project.path / ".state" / name
        try:
            self._join()
            self._write(project, self.state)
        except BaseException:
            self.close()
            raise

    def _join(self):
        def has_namespace(holder):
            assert holder.poll() is None, "unshare has ended with status %d" % holder.returncode
            return os.readlink("/proc/%d/ns/net" % holder.pid) != os.readlink("/proc/self/ns/net")

        for holder in self.holders.values():
            until(lambda holder=holder: has_namespace(holder))
        self.run(
            "node1",
            *"ip link add eth1 type veth peer name eth1 netns".split(),
            str(self.holders["node2"].pid),
        )
        for host, address in ADDRESSES.items():
            self.run(host, "ip", "address", "add", address + "/24", "dev", "eth1")
            for interface in ("lo", "eth1"):
                self.run(host, "ip", "link", "set", interface, "up")

    def _write(self, project, state):
        local = project.path / ".state" / "local"
        shutil.copytree(str(project.path / "inventory" / "local"), str(self.inventory))
        (state / "nodes").mkdir(parents=True)
        variables = self.inventory / "group_vars" / "all.yml"
        kept = [
            line
            for line in variables.read_text().splitlines()
            if not line.startswith(("mxcluster_home:", "ansible_remote_tmp:"))
        ]
        kept += [
            "mxcluster_state_dir: %s" % state,
            "mxcluster_home: %s" % local,
            "ansible_remote_tmp: %s" % (local / "tmp"),
        ]
        variables.write_text("\n".join(kept) + "\n")
        hosts = {}
        for host, address in ADDRESSES.items():
            shell = state / ("sh-" + host)
            shell.write_text('#!/bin/sh\nexec %s /bin/sh "$@"\n' % " ".join(self._enter(host)))
            shell.chmod(0o755)
            hosts[host] = {"node_address": address, "ansible_shell_executable": str(shell)}
            record = json.loads((local / "nodes" / (host + ".json")).read_text())
            record["interfaces"] = {"lo": ["127.0.0.1/8"], "eth1": [address + "/24"]}
            (state / "nodes" / (host + ".json")).write_text(json.dumps(record))
        groups = {
            "scheduler": ["node1"],
            "servers": ["node1", "node2"],
            "workers": ["node1", "node2"],
        }
        (self.inventory / "hosts.yml").write_text(
            json.dumps(
                {
                    "all": {
                        "hosts": hosts,
                        "children": {
                            name: {"hosts": dict.fromkeys(members)}
                            for name, members in groups.items()
                        },
                    }
                }
            )
        )

    def _enter(self, host):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.holders[host].pid]

    def run(self, host, *command, **options):
        """Run a command in a node's namespace."""
        return subprocess.run([*self._enter(host), *command], check=True, **options)

    def cut(self, source, target, ports):
        """Drop packets from `source` to these ports (in nft's syntax) of `target`."""
        self.run(target, "nft", "-f", "-", input=(RULES % (ADDRESSES[source], ports)).encode())

    def mend(self):
        """Remove all packet filters."""
        for host in ADDRESSES:
            self.run(host, "nft", "flush", "ruleset")

    def close(self):
        """Remove the namespaces, the inventory and its state: others can come after them."""
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
        for folder in (self.inventory, self.state):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(str(folder))
