"""Secrets from a vault, and nodes from the inventory plugin of a cloud."""

import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import secrets
import shutil
import subprocess
import threading
import urllib.parse

import pytest

from tests.playbooks.conftest import NET, SOURCE, On

ANSWER = pathlib.Path(__file__).parent / "answers" / "DescribeInstances.xml"
EXAMPLE = SOURCE / "examples" / "vault.yml"
# The script prints digests, so that the log proves the values and does not have them.
SCRIPT = (
    "import hashlib, os\n"
    "for name in ('TOKEN', 'PASSWORD'):\n"
    "    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest())\n"
    "import mxnet\n"
)


class Cloud(http.server.ThreadingHTTPServer):
    """The API of EC2 on a loopback address of this test process; it repeats one answer.

    `asked` has the requests, each a dict of its parameters.
    """

    def __init__(self):
        self.asked = []
        super().__init__((NET + ".1", 0), Request)
        self.url = "http://%s:%d" % self.server_address


class Request(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(dict(urllib.parse.parse_qsl(body)))
        answer = ANSWER.read_text().replace("127.0.0", NET).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml;charset=UTF-8")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def settings(project, **values):
    """Give the playbooks of the project these environment variables."""
    before = project.environment
    project.environment = dict(before, **values)
    try:
        yield
    finally:
        project.environment = before


@pytest.fixture(scope="module")
def cloud(project):
    server = Cloud()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with settings(
        project,
        AWS_ENDPOINT_URL_EC2=server.url,
        AWS_ACCESS_KEY_ID="anybody",
        AWS_SECRET_ACCESS_KEY="any-key",
        AWS_MAX_ATTEMPTS="1",
    ):
        yield server
    server.shutdown()
    thread.join()
    server.server_close()


def listed(project, *arguments):
    """Return the output of ansible-inventory on the inventory of the cloud."""
    return subprocess.check_output(
        [str(project.programs / "ansible-inventory"), "-i", "inventory/aws", *arguments],
        cwd=str(project.path),
        env=dict(project.environment, LC_ALL="C.UTF-8", HOME=str(project.home)),
    ).decode()


def test_tags_and_types_of_instances_are_groups_and_variables(project, cloud):
    groups = {}
    for line in re.findall(r"[@\w]+:?$", listed(project, "--graph"), re.MULTILINE):
        if line.startswith("@"):
            group = groups.setdefault(line, set())
        else:
            group.add(line)
    assert groups["@scheduler:"] == groups["@servers:"] == {"node1"}, groups
    assert groups["@workers:"] == {"node1", "node2", "node3"}, groups
    assert groups["@type_g4dn_xlarge:"] == {"node1", "node2"}, groups
    assert {request["Action"] for request in cloud.asked} == {"DescribeInstances"}
    assert cloud.asked[0]["Filter.1.Name"] == "tag:mxcluster", cloud.asked
    hosts = json.loads(listed(project, "--list"))["_meta"]["hostvars"]
    assert list(hosts) == ["node1", "node2", "node3"]
    of_first = {name: hosts["node1"][name] for name in ("ansible_host", "worker_group")}
    assert of_first == {"ansible_host": NET + ".11", "worker_group": "g4dn.xlarge"}, hosts
    assert hosts["node1"]["node_host_key"].startswith("ssh-ed25519 AAAA")
    # EC2 has no such tag for this instance; preflight refuses a node whose key is unknown.
    assert "node_host_key" not in hosts["node3"], hosts


@pytest.fixture(scope="module")
def aws(project, cloud):
    """Return the project with the instances as nodes, on this machine as those of pair."""
    folder = project.path / "inventory" / "cloud"
    shutil.copytree(str(project.path / "inventory" / "aws"), str(folder), dirs_exist_ok=True)
    text = (project.path / "inventory" / "local" / "group_vars" / "all.yml").read_text()
    text += "mxcluster_state_dir: %s\n" % (project.path / ".state" / "local")
    (folder / "group_vars" / "all.yml").write_text(text)
    return On(project, folder)


def test_a_job_is_planned_for_the_instances(aws):
    result, _ = aws.train(kv="dist_gsync", data_allocator=1, plan_only=True)
    assert result.code == 0, result.output
    rows = re.findall(
        r"^worker +\d +(\S+) +%s\.(\d+):\d+ .* (\S+) +([\d.]+) ([\d.]+)$" % re.escape(NET),
        result.output,
        re.MULTILINE,
    )
    assert [row[:3] for row in rows] == [
        ("node1", "11", "g4dn.xlarge"),
        ("node2", "12", "g4dn.xlarge"),
        ("node3", "13", "p3.2xlarge"),
    ], result.output
    shares = [float(row[4]) - float(row[3]) for row in rows]
    assert shares == pytest.approx([1 / 6, 1 / 6, 4 / 6], abs=0.01), result.output


def test_a_cloud_that_does_not_answer_ends_the_run(project, aws, cloud):
    """The nodes of the other source, alone, would train with other ranks and shares."""
    jobs = project.jobs()
    with settings(project, **dict(project.environment, AWS_ENDPOINT_URL_EC2=cloud.url + "0")):
        started = project.start("train.yml", "-i", "inventory/local", *aws.where)
        output = project.finish(started)
    assert started.returncode and "failed to parse inventory source" in output.lower(), output
    assert project.jobs() == jobs


def test_a_vault_gives_secrets_that_no_file_has(project, tmp_path):
    """The copy of the example is encrypted as a whole. PASSWORD is encrypted where it stands."""
    values = {name: "s3cret-" + secrets.token_hex(8) for name in ("TOKEN", "PASSWORD")}
    key, script = tmp_path / "password", tmp_path / "mine" / "reads.py"
    script.parent.mkdir()  # its whole folder travels to the nodes
    key.write_text(secrets.token_hex(16))
    script.write_text(SCRIPT)
    unlocked = ["--vault-password-file", str(key)]

    def vault(command, *words):
        argv = [str(project.programs / "ansible-vault"), command, *unlocked, *map(str, words)]
        return subprocess.check_output(argv, stderr=subprocess.DEVNULL).decode()

    folder = project.inventory("vault", nodes=2) / "group_vars"
    (folder / "all").mkdir()
    (folder / "all.yml").rename(folder / "all" / "main.yml")
    encrypted = folder / "all" / "vault.yml"
    encrypted.write_text(EXAMPLE.read_text().replace("change me", values["TOKEN"]))
    vault("encrypt", encrypted)
    with (folder / "all" / "main.yml").open("a") as stream:
        stream.write('train_job_secret_env:\n  TOKEN: "{{ vault_token }}"\n  PASSWORD: ')
        stream.write(vault("encrypt_string", values["PASSWORD"]).replace("\n", "\n    "))
        stream.write('\nansible_become_password: "{{ vault_become_password }}"\n')
    inventory = ["-i", str(folder.parent)]

    locked = project.run("train.yml", *inventory, "-e", "plan_only=true")
    assert locked.code and "no vault secrets" in locked.output, locked.output
    began = key.stat().st_mtime
    result, run = project.train(*inventory, *unlocked, "-vvv", script=str(script), kv="local")
    assert result.code == 0, result.output[-3000:]
    log = (run / "nodes" / "node1" / "worker-0.log").read_text()
    hidden = [*values.values(), key.read_text()]
    for name, value in values.items():
        assert "%s %s" % (name, hashlib.sha256(value.encode()).hexdigest()) in log, log
    assert [secret for secret in hidden if secret in result.output] == []
    written = [
        path
        for top in (run, project.path / ".state", project.home, project.tmp)
        for path in top.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= began
    ]
    assert run / "run.json" in written and len(written) > 10
    contents = {path: path.read_bytes() for path in written}
    found = [path for path in contents for one in hidden if one.encode() in contents[path]]
    assert found == [], found
