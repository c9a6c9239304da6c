"""Variables that a person gives with `-e name=value`: which playbook reads which short name, and which name is unknown. Pure."""
from typing import Iterable, Iterator, List

from .errors import did_you_mean
from .options import OPTIONS

# The short names of each role's knobs; the variable of the inventory has the role's name in front: train_job_kv, jobs_lines.
# `poll` is none: Ansible reserves the word, so that knob is train_job_poll here too.
SHORT = {
    "train_job": tuple(option.name for option in OPTIONS) + ("secret_env", "runs_dir"),
    "jobs": ("job", "all", "lines", "json"),
}
# What decides where the nodes are and which groups they form.
_LAYOUT = ("hosts_file", "groups_file", "data_sharding_file", "dmlc_interface")
# The short names that a playbook reads; `attach` and `yum_backend` belong to a playbook and to no role.
PLAYBOOKS = {
    "provision.yml": _LAYOUT + ("yum_backend",),
    "verify.yml": _LAYOUT + ("data_allocator", "root_port", "without"),
    "train.yml": SHORT["train_job"] + ("attach",),
    "status.yml": ("json",),
    "logs.yml": ("job", "lines"),
    "stop.yml": ("job", "all"),
}  # type: Dict[str, Any]
# The knobs that train.yml takes beside attach: the job is planned already. `without` names nodes whose copy of the plan does
# not count.
_WITH_ATTACH = ("attach", "runs_dir", "without")
# Variables of a host in the inventory. Given with -e, they hold for all hosts.
OF_A_HOST = ("node_address", "cluster_network", "dmlc_interface", "worker_group", "worker_share", "workers_per_host",
             "servers_per_host", "gpus", "node_host_key")


def unknown(given: Iterable[str], playbooks: Iterable[str], documented: Iterable[str], inventory: Iterable[str]) -> List[str]:
    """What is wrong with the names `given` with -e, a line each.

    playbooks: the names of the playbooks that run. documented: the variables of all roles. inventory: the names that the
    inventory knows, because it defines or uses them.
    """
    read = sorted({name for playbook in playbooks for name in PLAYBOOKS[playbook]})
    everywhere = set(documented) | (set(OF_A_HOST) - {name for names in PLAYBOOKS.values() for name in names}) | set(inventory)
    return list(_problems(sorted(set(given) - set(read) - everywhere), sorted(playbooks), read, everywhere))


def beside_attach(given: Iterable[str]) -> List[str]:
    """What is wrong with the names `given` with -e beside attach=<job>, a line each: the job is planned already."""
    return ["-e %s: train.yml -e attach=<job> goes on with the plan that the job was started with, and reads no other knob: "
            "take it out" % name for name in sorted(given) if name in PLAYBOOKS["train.yml"] and name not in _WITH_ATTACH]


def _longer(name: str, names: Iterable[str]) -> str:
    """The name that has a role's name in front, for one that is given without."""
    found = sorted(longer for longer in names if longer.endswith("_" + name))
    return " (did you mean %s?)" % " or ".join(map(repr, found[:3])) if found else ""


def _problems(names: List[str], playbooks: List[str], read: List[str], everywhere: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name == "_raw_params":  # Ansible's name for words without '='
            yield "-e with words that are no name=value: write -e name=value, or -e @file for a file"
            continue
        owners = [playbook for playbook in sorted(PLAYBOOKS) if name in PLAYBOOKS[playbook]]
        if owners:
            yield ("-e %s is a knob of %s, and %s does not read it%s: take it out, or correct the name"
                   % (name, " and ".join(owners), " and ".join(playbooks), did_you_mean(name, read)))
        else:
            yield ("-e %s: no role, playbook or inventory knows a variable of this name%s: correct the name, or take it out"
                   % (name, did_you_mean(name, read) or _longer(name, everywhere) or did_you_mean(name, everywhere)))
