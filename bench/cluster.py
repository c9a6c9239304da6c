"""Measure provisioning and job start on 2, 4 and 8 containers, over real sshd."""

import json
import os
import re
import statistics
import time

from bench._nodes import nodes, play

SIZES, ROUNDS = (2, 4, 8), 3


def first_step(folder, number):
    """Run one job on the containers; return ({phase: seconds}, {task of Ansible: seconds}).

    A phase ends with the start of the agents, with the first batch of any worker, or with the
    verdict.

    Args: `folder` from `nodes`; `number` of the job, for its id.
    """
    job = "bench-%d" % number
    command = time.time()
    os.environ["ANSIBLE_CALLBACKS_ENABLED"] = "ansible.posix.profile_tasks"
    seconds, output = play(folder, "train.yml", "-e", "num_epochs=2", "-e", "job_id=" + job)
    events = [
        json.loads(line)
        for line in (folder / "runs" / job / "events.jsonl").read_text().splitlines()
    ]
    batch = min(event["time"] for event in events if event["event"] == "batch")
    tasks = {}
    for name, spent in re.findall(r"^(.+?) -{3,} +([\d.]+)s$", output, re.MULTILINE):
        tasks[name.split(" : ")[-1].strip()] = float(spent)
    started = json.loads((folder / "runs" / job / "nodes" / "node1" / "status.json").read_text())[
        "started"
    ]
    return {
        "to the start of the agents": started - command,
        "from the agents' start (rendezvous, import, data) to the first step": batch - started,
        "to the first step": batch - command,
        "to the verdict": seconds,
    }, tasks


def main(options):
    """Print the seconds of provision.yml for each of SIZES, and of train.yml on 4 nodes.

    Args: `options` of the command line, not used.
    """
    noop = {}
    for count in SIZES:
        with nodes(count) as folder:
            first, _ = play(folder, "provision.yml")
            times = []
            for _ in range(ROUNDS):
                seconds, output = play(folder, "provision.yml")
                assert set(re.findall(r"changed=(\d+)", output)) == {"0"}, output
                times.append(seconds)
            noop[count] = statistics.median(times)
            print(
                "%d nodes: provision.yml on bare nodes %.1f s, with nothing to do %.1f s (%.1f .. "
                "%.1f)" % (count, first, noop[count], min(times), max(times)),
                flush=True,
            )
            if count == 4:
                jobs = [first_step(folder, number) for number in range(ROUNDS)]
                for what in jobs[0][0]:
                    found = [job[0][what] for job in jobs]
                    print(
                        "  train.yml %s: %.1f s (%.1f .. %.1f)"
                        % (what, statistics.median(found), min(found), max(found))
                    )
                slowest = sorted(jobs[-1][1].items(), key=lambda task: -task[1])[:10]
                print(
                    "  longest tasks: " + ", ".join("%s %.1f s" % task for task in slowest),
                    flush=True,
                )
    print(
        "each additional node adds %.2f s to a provision.yml with nothing to do (2 to 8 nodes)"
        % ((noop[8] - noop[2]) / 6)
    )
