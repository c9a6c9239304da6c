"""`mxcluster launch` runs a script on the local inventory, as MXNet's launch.py does.

molecule/default runs it over ssh and mpirun, and checks the exit status of a failed script.
"""

import os
import subprocess
import sys

SCRIPT = """
import os, sys
import mxnet as mx
kv = mx.kv.create(sys.argv[sys.argv.index("--kv-store") + 1])
kv.init(0, mx.nd.ones(2))
print("HEARD", sys.argv[1:], kv.rank, kv.num_workers, flush=True)
print("MODES", os.environ["BOTH"], os.environ["MODE"], os.environ["OMP_NUM_THREADS"], flush=True)
kv.push(0, mx.nd.ones(2))
out = mx.nd.zeros(2)
kv.pull(0, out)
print("SUM", out.asnumpy().tolist(), flush=True)
kv._barrier()
"""


def launch(project, folder, *words, **variables):
    """Run `mxcluster launch` of the copy in `folder`; return (exit status, output)."""
    environment = dict(
        os.environ,
        PYTHONPATH=str(project.path / "python"),
        HOME=str(project.home),
        TMPDIR=str(project.tmp),
        LC_ALL="C.UTF-8",
        **variables,
    )
    done = subprocess.run(
        [sys.executable, "-m", "mxcluster.cli", "launch", *words],
        cwd=str(folder),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def test_words_and_variables_arrive(project, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    before = set(project.jobs())
    line = ["-n", "3", "-s", "2", "--launcher", "local", "--env", "BOTH"]
    line += ["--env-worker", "MODE:worker", "--env-server", "MODE:server"]
    line += ["python", "train.py", "--kv-store", "dist_sync"]
    code, output = launch(
        project, tmp_path, *line, "a b", "it's $HOME", "{{ 7 * 7 }}{#", "-n", "9", BOTH="x y"
    )
    assert code == 0, output
    assert "the nodes run train.py with the Python of their own environments" in output
    (job,) = set(project.jobs()) - before
    nodes = project.path / "runs" / job / "nodes"
    logs = [path.read_text() for path in sorted(nodes.glob("*/worker-*.log"))]
    words = "['--kv-store', 'dist_sync', 'a b', \"it's $HOME\", '{{ 7 * 7 }}{#', '-n', '9']"
    assert len(logs) == 3 and all("HEARD %s" % words in log for log in logs), logs
    assert all("SUM [3.0, 3.0]" in log for log in logs), logs
    assert all("MODES x y worker 1" in log for log in logs), logs  # and the inventory's env
    # Two servers on the first two nodes, then three workers: launch.py's order.
    assert [path.parent.name for path in sorted(nodes.glob("*/server-*.log"))] == ["node1", "node2"]
    assert sorted(path.parent.name for path in nodes.glob("*/worker-*.log")) == [
        *("node1", "node3", "node4")
    ]
    assert "export MODE=server" in (nodes / "node1" / "server-0.env").read_text()
    assert not list(project.tmp.iterdir())
    project.wait_for_nothing_left()


def test_a_host_that_is_not_provisioned_is_named(project, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "hosts").write_text("node1\n192.0.2.7\n")
    code, output = launch(
        project, tmp_path, "-n", "2", "-H", "hosts", "python", "train.py", "--kv-store", "dist_sync"
    )
    assert code == 2, output
    assert "192.0.2.7 is no host of the inventory" in output and "run provision.yml" in output
