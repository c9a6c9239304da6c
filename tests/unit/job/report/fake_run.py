"""A run folder as a job's nodes leave it, generated from a few formulas."""

import json
import math
import os
import random
import tarfile

from mxcluster import exit_codes
from mxcluster.model.verdict import Failure, Verdict
from tests.plans import plan_with, process_of

BEGIN = 1795250000.0


def failure(**fields):
    """Return a Failure with these fields, and others of a worker."""
    known = {"host": "node1", "role": "worker", "index": 1, "name": "worker-1", "reason": "gone"}
    return Failure(**dict(dict(known, exit_code=None, time=None, kind="program"), **fields))


def verdict(first_failure=None, **fields):
    """Return a Verdict with these fields."""
    known = {"job": "j", "kv": "k", "accuracy": None, "samples_per_s": None, "seconds": 1.0}
    known.update(exit_codes={}, nodes={}, ok=first_failure is None)
    return Verdict(**dict(dict(known, first_failure=first_failure), **fields))


def make_plan(workers=4, groups=2, kv="dist_gsync", servers=2, script=""):
    """Return a plan with two workers a node, in groups of neighbours with the labels a, b, ..."""
    hosts = ["node%d" % (number + 1) for number in range((workers + 1) // 2)]
    members = [
        list(range(g * workers // groups, (g + 1) * workers // groups)) for g in range(groups)
    ]
    group_of = {index: group for group, indices in enumerate(members) for index in indices}
    roles = [("scheduler", 0, hosts[0])]
    roles += [("server", index, hosts[index % len(hosts)]) for index in range(servers)]
    roles += [("worker", index, hosts[index // 2]) for index in range(workers)]
    ports, common = dict.fromkeys(hosts, 9090), {"interface": "lo", "python": "/env/bin/python"}
    processes = []
    for role, index, host in roles:
        ports[host] += 1
        fields = {}
        if role == "worker":
            fields = {"group": group_of[index], "share": (index / workers, (index + 1) / workers)}
        processes.append(
            process_of(
                role,
                index,
                host=host,
                address="127.0.0.%d" % (11 + hosts.index(host)),
                port=ports[host],
                **fields,
            )
        )
    return plan_with(
        *processes,
        job="20261121-101500-%s" % kv,
        kv=kv,
        lease=60.0,
        workers=workers,
        servers=servers,
        root={"address": "127.0.0.11", "port": 9091},
        groups=members,
        group_labels=[chr(ord("a") + number) for number in range(groups)],
        together=members if kv == "dist_gsync" else [list(range(workers))],
        shares=[[i / workers, (i + 1) / workers] for i in range(workers)],
        options={"kv": kv, "script": script, "network": "mlp", "batch_size": 32, "num_epochs": 20},
        nodes={
            host: dict(common, address="127.0.0.%d" % (11 + number), job_dir="/jobs/" + host)
            for number, host in enumerate(hosts)
        },
    )


def worker_events(plan, index, epochs=20, batches=25, until=None):
    """Yield the events of a worker until `until` seconds; later groups have slower workers."""
    dice = random.Random(index)
    group = next(g for g, members in enumerate(plan.groups) if index in members)
    process = next(p for p in plan.processes if p.name == "worker-%d" % index)
    who = {"role": "worker", "index": index, "host": process.host}
    pace = 0.022 * (1 + 0.6 * group) * (1 + 0.04 * dice.random())
    moment = BEGIN + 1.5 + 0.2 * dice.random()

    def event(kind, **fields):
        return dict({"event": kind, "time": round(moment, 3)}, **dict(who, **fields))

    size = batches * 32 - 3
    events = [event("start", epochs=epochs, batches=batches, samples_in_share=size, repeated=3)]
    waited = 0.0
    for step in range(1, epochs * batches + 1):
        seconds = pace * (0.85 + 0.3 * dice.random())
        waited += 0.2 * seconds
        moment += seconds
        done = step / (epochs * batches)
        loss = 2.3 * math.exp(-5 * done) + 0.04 + 0.25 * math.exp(-3 * done) * dice.random()
        epoch, batch = divmod(step - 1, batches)
        figures = {"loss": loss, "samples_per_s": 32 / seconds, "done": done}
        count = {"epoch": epoch, "samples": step * 32}
        events.append(event("batch", batch=batch, step=step, **dict(count, **figures)))
        if step % batches == 0:
            accuracy = 0.975 - 0.8 * math.exp(-7 * done) + 0.006 * dice.random()
            events.append(event("epoch", accuracy=accuracy, seconds=batches * pace, **count))
    seconds, samples = moment - BEGIN - 1.5, epochs * batches * 32
    events.append(event("kv", seconds=seconds, steps=epochs * batches, waited_s=waited))
    figures = {"samples": samples, "seconds": seconds, "samples_per_s": samples / seconds}
    events.append(event("end", accuracy=0.9722, **figures))
    events.append(event("done"))
    return [e for e in events if until is None or e["time"] < BEGIN + until]


def server_events(plan, index):
    """Yield the events of a gsync server: Y of every group."""
    host = next(p for p in plan.processes if p.name == "server-%d" % index).host
    groups = len(plan.groups)
    for part in (0.5, 1.0):
        for group in range(groups):
            spread = 1 + 0.5 * groups
            counts = {
                str(v): int(part * 400 * math.exp(-((v - groups - 0.4 * group) ** 2) / spread))
                for v in range(1, 2 * groups + 4)
            }
            y = {value: count for value, count in counts.items() if count}
            event = {"event": "gsync", "time": BEGIN + 18 * part, "role": "server", "host": host}
            yield dict(event, index=index, group=group, updates=sum(y.values()), y=y)


def make_archives(folder, plan, failed=None, until=None, epochs=20, batches=25):
    """Return {host: tar file} of the job folders.

    `failed` is (process name, exit code, log lines), and `until` is the time of the failure in
    seconds.
    """
    os.makedirs(folder, exist_ok=True)
    archives = {}
    for host in plan.nodes:
        job = os.path.join(folder, host)
        os.makedirs(os.path.join(job, "checkpoints"), exist_ok=True)
        events, states, first = [], [], None
        for process in (p for p in plan.processes if p.host == host):
            code, log = (
                0,
                ["[10:15:01] %s is ready" % process.name, "colours \x1b[31mred\x1b[0m", "done"],
            )
            if process.role == "worker":
                events += worker_events(plan, process.index, epochs, batches, until)
            elif process.role == "server" and plan.kv == "dist_gsync" and failed is None:
                events += server_events(plan, process.index)
            if failed and failed[0] == process.name:
                code, log = failed[1], failed[2]
                first = {
                    "host": host,
                    "role": process.role,
                    "index": process.index,
                    "name": process.name,
                    "reason": exit_codes.describe(code),
                    "exit_code": code,
                    "time": BEGIN + until,
                    "log": log[-20:],
                }
            elif failed:
                code = -15
            ended = {"state": "ended", "exit_code": code, "ended_at": BEGIN + (until or 30)}
            states.append(
                dict(ended, name=process.name, role=process.role, index=process.index, pid=1000)
            )
            with open(os.path.join(job, process.name + ".log"), "w") as stream:
                stream.write("\n".join(log) + "\n")
            if process.name == "worker-0":
                with open(os.path.join(job, "checkpoints", "model-0020.params"), "w") as stream:
                    stream.write("weights")
        status = {
            "job": plan.job,
            "host": host,
            "agent": {"pid": 1, "start_time": 1},
            "state": "ended",
            "reason": "failed" if failed else "done",
            "started": BEGIN,
            "ended": BEGIN + (until or 30),
            "processes": states,
            "first_failure": first,
        }
        with open(os.path.join(job, "status.json"), "w") as stream:
            json.dump(status, stream)
        with open(os.path.join(job, "events.jsonl"), "w") as stream:
            stream.writelines(
                json.dumps(event) + "\n"
                for event in sorted(events, key=lambda event: event["time"])
            )
        archives[host] = os.path.join(folder, host + ".tar")
        with tarfile.open(archives[host], "w") as tar:
            tar.add(job, arcname=".")
    return archives
