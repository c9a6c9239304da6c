"""secret_env and the job's token reach the script, but appear in no output or command line."""

import hashlib
import json
import os
import pathlib
import secrets
import threading

import pytest

SECRET = "a-t0ken-" + secrets.token_hex(8)  # no other run of this test has it on a command line
# The script waits until its command line has been seen.
SCRIPT = (
    "import hashlib, os, shutil, sys, time\n"
    "while not os.path.exists(sys.argv[1] + '.seen'): time.sleep(0.05)\n"
    "shutil.copy(os.environ['MXCLUSTER_JOB_DIR'] + '/token', sys.argv[1])\n"
    "print('DIGEST ' + hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest())\nimport mxnet\n"
)


def watch_command_lines(seen, done, token):
    """Record every command line, and tell the script that its own is among them."""
    while not done.wait(0.05):
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.add(path.read_bytes())
            except OSError:  # the process has ended
                continue
        if any(b"\0mxcluster.training" in line and bytes(token) in line for line in seen):
            token.with_name("token.seen").touch()


@pytest.mark.parametrize(
    "knob", ["secret_env", "train_job_secret_env"]
)  # Ansible checks the role's own variable against its specs, too
def test_no_secret_is_told(pair, tmp_path, knob):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "reads_it.py").write_text(SCRIPT)
    (tmp_path / "secrets.json").write_text(json.dumps({knob: {"TOKEN": SECRET}}))
    seen, done = set(), threading.Event()
    watcher = threading.Thread(target=watch_command_lines, args=(seen, done, tmp_path / "token"))
    watcher.start()
    try:
        result, run = pair.train(
            "-vvv",
            "-e",
            "@%s" % (tmp_path / "secrets.json"),
            kv="local",
            job_id=knob,
            script=str(tmp_path / "mine" / "reads_it.py"),
            script_args=[str(tmp_path / "token")],
        )
    finally:
        done.set()
        watcher.join()
    assert result.code == 0, result.output[-3000:]
    log = (run / "nodes" / "node1" / "worker-0.log").read_text()
    assert "DIGEST " + hashlib.sha256(SECRET.encode()).hexdigest() in log, log
    token = (tmp_path / "token").read_text()
    assert len(token) == 64 and (tmp_path / "token").stat().st_mode & 0o077 == 0
    for secret in (SECRET, token):
        assert secret not in result.output and not [
            line for line in seen if secret.encode() in line
        ]
    files = [
        path
        for folder in (run, pair.path / ".state", pair.home, pair.tmp)
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and path.stat().st_mtime > os.stat(str(tmp_path / "mine")).st_mtime
    ]
    assert len(files) > 10
    for secret in (SECRET, token):
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    jobs = pair.path / ".state" / "local" / "jobs" / "node1" / knob
    assert {
        path.name: path.stat().st_mode & 0o077
        for path in jobs.iterdir()
        if path.suffix in (".env", ".tar") or path.name == "plan.json"
    } == {"plan.json": 0, "worker-0.env": 0, "collected.tar": 0}


def test_what_cannot_be_a_secret_is_refused_without_its_value(project, tmp_path):
    (tmp_path / "secrets.json").write_text(
        json.dumps(
            {
                "secret_env": {"TOKEN": SECRET, "DMLC_ROLE": SECRET, "LIST": [SECRET]},
                "env": {"TOKEN": "public"},
            }
        )
    )
    result, run = project.train("-vvv", "-e", "@%s" % (tmp_path / "secrets.json"), kv="local")
    assert result.code != 0 and SECRET not in result.output and not run.exists()
    for words in (
        "secret_env: 'LIST' is refused",
        "mxcluster sets DMLC_ROLE itself",
        "TOKEN is in env too",
    ):
        assert words in result.output, result.output[-2000:]
