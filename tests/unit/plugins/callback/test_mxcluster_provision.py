"""What the terminal shows of provision.yml with twelve nodes: first, again, and with a failure."""

import http.server
import re
import threading

import pytest

from tests.unit.plugins.callback import twelve_nodes
from tests.waiting import until

pytestmark = pytest.mark.slow

FIRST = """\
node01, node03, node04, node05, node06, node07, node08, node09 and 3 more: needs provisioning: new
node02: needs provisioning: another user
preflight        12 nodes: 12 ok   0:00
training_user    12 nodes: 12 changed   0:00
mxnet            12 nodes: 3 ok, 9 changed (node01, node02, node03, node04, node05, node06, \
node07, node08 and 1 more)   0:00
datasets         12 nodes: 12 ok   0:00

PLAY RECAP
"""

SECOND = """\
preflight        12 nodes: 11 skipped, 1 ok   0:00
training_user    12 nodes: 12 ok   0:00
mxnet            12 nodes: 12 ok   0:00
datasets         12 nodes: 12 ok   0:00

PLAY RECAP
"""

# On a terminal of 80 columns.
FAILED = """\
node01, node03, node04, node05, node06 and 6 more: needs provisioning: new
node02: needs provisioning: another user
preflight        12 nodes: 12 ok   0:00
training_user    12 nodes: 12 changed   0:00
TASK [mxnet : Check the disk]
fatal: [node03], [node07]: FAILED!
  /opt has 40 MB free, and MXNet needs 900 MB: delete files there
mxnet            12 nodes: 3 ok, 7 changed (node01 and 6 more), 2 failed (node03 and 1 more)   0:00
datasets         10 nodes: 10 ok   0:00

PLAY RECAP
"""

NARROW = """\
node01 and 10 more: needs provisioning: new
node02: needs provisioning: another user
"""

END = """
FAILED    provision.yml on node03, node07   0:00
next      correct the cause, and run provision.yml again: it repeats unfinished steps
log       %s/state/provision-DATE.log
"""

HALF = 5 << 20  # bytes of the fake download before the test lets it go on

DOWNLOAD = """
- name: Fetch CUDA
  mxcluster_downloads:
    command: archives
    files: [{url: "http://127.0.0.1:%d/cuda.run", name: cuda.run, sha256: ""}]
    store: "{{ playbook_dir }}/store"
  run_once: true
"""


@pytest.fixture
def project(tmp_path):
    """Return a project with twelve nodes."""
    return twelve_nodes.written(tmp_path)


def shown(output):
    """Return the output without durations and the time of the log's name.

    A busy machine may show the two failures apart.
    """
    output = re.sub(r"(\[node03\])(: FAILED!\n  .*\n)fatal: (\[node07\])\2", r"\1, \3\2", output)
    return re.sub(r"provision-\d{8}-\d{6}", "provision-DATE", twelve_nodes.without_times(output))


def test_the_first_and_the_second_provisioning_show_a_line_for_each_role(project):
    for env, expected in (({}, FIRST), ({"SECOND": "1"}, SECOND)):
        output, code = twelve_nodes.run(project, env=env)
        assert code == 0 and "\x1b" not in output, output
        begin, recap = shown(output).split("PLAY RECAP\n")
        assert begin + "PLAY RECAP\n" == expected
        assert recap.count("changed=") == 12
        assert recap.endswith("\nOK        provision.yml   0:00\n"), recap


@pytest.mark.parametrize("columns, begin", [(80, FAILED), (40, NARROW)])
def test_a_failure_names_hosts_task_message_and_what_to_do(project, columns, begin):
    lines, code = twelve_nodes.OnTerminal(project, columns, env={"FULL": "1"}).end()
    output = shown("\n".join(lines))
    assert code == 2 and output.startswith(begin) and output.endswith(END % project), output


def test_a_dumb_terminal_gets_no_control_sequences(tmp_path):
    project = twelve_nodes.written(tmp_path, 3)
    run = twelve_nodes.OnTerminal(project, 80, env={"FULL": "1", "TERM": "dumb"})
    lines, _ = run.end()
    assert "  /opt has 40 MB free, and MXNet needs 900 MB: delete files there" in lines
    assert "\x1b" not in run.output and not re.search(r"\r(?!\n)", run.output)


@pytest.fixture
def slow_server():
    """Yield a server of a file of 10 MB, which sends the second half when `go_on` is set."""

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(2 * HALF))
            self.end_headers()
            self.wfile.write(b"x" * HALF)
            self.server.go_on.wait(900)
            self.wfile.write(b"x" * HALF)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as made:
        made.go_on = threading.Event()
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.go_on.set()
        made.shutdown()


def test_a_download_shows_its_bytes(tmp_path, slow_server):
    fetch = DOWNLOAD % slow_server.server_port
    project = twelve_nodes.written(tmp_path, 2, **{"roles/datasets/tasks/main.yml": fetch})
    run = twelve_nodes.OnTerminal(project, 80)
    until(lambda: "of 10 MB" in run.output, 600, lambda: run.output)
    live = re.findall(r"datasets +Fetch CUDA  ([\d.]+) of 10 MB  \d:\d\d\x1b\[K", run.output)
    assert live and 0 < float(live[-1]) <= 5.3, run.output
    slow_server.go_on.set()
    lines, code = run.end()
    assert code == 0 and "Fetch CUDA" not in "\n".join(lines), lines
    assert (project / "store" / "cuda.run").stat().st_size == 2 * HALF


def test_ctrl_c_leaves_a_whole_terminal(tmp_path, slow_server):
    fetch = DOWNLOAD % slow_server.server_port
    project = twelve_nodes.written(tmp_path, 2, **{"roles/datasets/tasks/main.yml": fetch})
    run = twelve_nodes.OnTerminal(project, 80)
    until(lambda: "of 10 MB" in run.output, 600, lambda: run.output)
    run.answer("\x03")
    lines, code = run.end()
    assert code and not any("of 10 MB" in line for line in lines), lines
