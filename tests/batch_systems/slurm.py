"""A stand-in for the programs of Slurm: `python slurm.py PROGRAM argument...`.

The folder FAKE_SLURM holds its state: "queue" with the reason that new jobs wait, "hosts" with the
names of all nodes, and for each job its pid and its state.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

STATE = pathlib.Path(os.environ["FAKE_SLURM"])


def read(name):
    path = STATE / name
    return path.read_text().strip() if path.exists() else ""


def alive(pid):
    try:
        return "State:\tZ" not in pathlib.Path("/proc/%s/status" % pid).read_text()
    except OSError:
        return False


def state_of(job):
    known = read(job + ".state")
    if known:
        return known
    if not read(job + ".pid"):
        return "PENDING"
    return "RUNNING" if alive(read(job + ".pid")) else "COMPLETED"


def sinfo(_):
    print("main|main*|2\nmain|main*|1\nsmall|small|1")


def sbatch(arguments):
    given = dict(word.partition("=")[::2] for word in arguments)
    if read("refuse"):
        sys.exit("sbatch: error: " + read("refuse"))
    job = str(int(read("last") or 6) + 1)
    (STATE / "last").write_text(job)
    (STATE / (job + ".argv")).write_text("\n".join(arguments))
    script = sys.stdin.read()
    if not read("queue"):
        hosts = ",".join(read("hosts").split()[: int(given["--nodes"])])
        with open(given["--output"], "ab") as log:
            started = subprocess.Popen(
                ["sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=dict(os.environ, SLURM_JOB_ID=job, SLURM_JOB_NODELIST=hosts),
            )
        (STATE / (job + ".pid")).write_text(str(started.pid))
    print(job)


def scontrol(arguments):
    if arguments[:2] == ["show", "hostnames"]:
        print("\n".join(arguments[2].split(",")))
        return
    job = arguments[-1]
    if not read(job + ".argv"):
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    print("JobId=%s JobState=%s Reason=%s" % (job, state_of(job), read("queue") or "None"))


def squeue(arguments):
    given = dict(word.partition("=")[::2] for word in arguments)
    if state_of(given["--jobs"]) == given["--states"]:
        print(given["--jobs"])


def scancel(arguments):
    job = arguments[0]
    if state_of(job) in ("RUNNING", "PENDING"):
        (STATE / (job + ".state")).write_text("CANCELLED")
        for pid in [read(job + ".pid")] + read(job + ".steps").split():
            if pid and alive(pid):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(int(pid), signal.SIGTERM)


def srun(arguments):
    job = os.environ["SLURM_JOB_ID"]
    with open(str(STATE / (job + ".steps")), "a") as stream:
        stream.write("%d\n" % os.getpid())
    if read(job + ".state"):  # scancel writes the state before it reads the steps
        sys.exit("srun: error: the job %s has ended" % job)
    argv = [word for word in arguments if not word.startswith("--")]
    os.execvp(argv[0], arguments[arguments.index(argv[0]) :])


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2:])
