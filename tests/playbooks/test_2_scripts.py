"""A user's script reads and writes files in its own folder."""

import json
import pathlib
import secrets
import shutil
import zipfile

SCRIPTS = pathlib.Path(__file__).parent / "scripts"


def test_a_script_finds_its_data_and_its_files_come_back(project, tmp_path):
    """The script has the layout of MXNet's train_mnist.py.

    Two of its workers share a host, and write files of the same name.
    """
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    shutil.copy(str(SCRIPTS / "train_as_mxnets.py"), str(folder / "train_mnist.py"))
    (folder / "data" / "train.csv").write_text("1\n2\n3\n")
    # MXNet must import Python's own module
    (folder / "queue.py").write_text("import this_is_nobodys_queue\n")
    group = "          worker_group: first pair\n"
    two = project.inventory(
        "two_on_a_host",
        **{group + "        node2:": group + "          workers_per_host: 2\n        node2:"},
    )
    result, run = project.train(
        "-i",
        str(two),
        kv="dist_sync",
        num_workers=3,
        num_servers=1,
        script=str(folder / "train_mnist.py"),
    )
    assert result.code == 0, result.output
    nodes = run / "nodes"
    brought = {
        str(path.relative_to(nodes)): path for path in nodes.glob("*/files/**/*") if path.is_file()
    }
    assert sorted(brought) == [
        "%s/files/%s/%s" % (host, worker, name)
        for host, worker in (("node1", "worker-0"), ("node1", "worker-1"), ("node2", "worker-2"))
        for name in ("model-0001.params", "rank.txt")
    ], sorted(brought)
    ranks = [
        path.read_text().split() for name, path in brought.items() if name.endswith("rank.txt")
    ]
    assert sorted(rank[0] for rank in ranks) == ["0", "1", "2"] and {rank[2] for rank in ranks} == {
        "True"
    }, ranks
    assert all(float(rank[1]) == float(rank[0]) + 1 for rank in ranks), ranks
    assert (
        "files     6 files of the program, in " in result.output
        and "warning" not in result.output.split("OK        job")[1]
    )
    assert json.loads((run / "verdict.json").read_text())["files"] == 6


SECRET = "hush-" + secrets.token_hex(8)
# The script needs a package of its project, reads its data and knows a secret.
OF_PROJECT = (
    "import os, sys\nimport helpers\nfrom mypkg import nets\nimport mxnet\n"
    "print('ROOT', open('data.csv').read(), nets.NAME, helpers.NAME, len(os.environ['TOKEN']))\n"
)


def test_a_script_of_a_project_runs_again_from_its_run_folder(project, tmp_path):
    """The run folder keeps the code, and no file of the run has a secret."""
    for path, text in {
        "repo/scripts/train.py": OF_PROJECT,
        "repo/scripts/helpers.py": "NAME = 'helpers'\n",
        "repo/mypkg/__init__.py": "",
        "repo/mypkg/nets.py": "NAME = 'nets'\n",
        "repo/data.csv": "7",
        "repo/large.rec": "0" * 100,
        "repo/.mxclusterignore": "*.rec\n",
        "repo/.env": SECRET,
        "repo/vault.yml": SECRET,
        "secrets.json": json.dumps({"secret_env": {"TOKEN": SECRET}, "their_token": SECRET}),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    inventory = project.inventory("keeper", nodes=2)
    with open(str(inventory / "group_vars" / "all.yml"), "a") as stream:
        stream.write("their_token: x\n")
    given = ("-i", str(inventory), "-e", "@%s" % (tmp_path / "secrets.json"))
    first, run = project.train(
        *given,
        "-e",
        "ansible_become_password=" + SECRET,
        kv="local",
        job_id="of-project",
        script=str(tmp_path / "repo" / "scripts" / "train.py"),
        script_root=str(tmp_path / "repo"),
    )
    assert first.code == 0, first.output[-3000:]
    known = json.loads((run / "run.json").read_text())
    assert known["ended"] and known["nodes"]["node1"]["mxnet"] and known["nodes"]["node1"]["cpu"]
    assert known["code"]["path"] == "scripts/train.py" and "***" in " ".join(known["command"])
    names = zipfile.ZipFile(str(run / "script.zip")).namelist()
    assert sorted(name for name in names if not name.endswith("/")) == [
        "data.csv",
        "mypkg/__init__.py",
        "mypkg/nets.py",
        "scripts/helpers.py",
        "scripts/train.py",
    ]
    shutil.rmtree(str(tmp_path / "repo"))
    again, repeated = project.train(
        *given, "-e", "@%s" % (run / "knobs.yml"), job_id="of-project-again"
    )
    assert again.code == 0, again.output[-3000:]
    for folder in (run, repeated):
        log = (folder / "nodes" / "node1" / "worker-0.log").read_text()
        assert "ROOT 7 nets helpers %d" % len(SECRET) in log, log
    other = json.loads((repeated / "run.json").read_text())
    assert other["code"]["sha256"] == known["code"]["sha256"]
    assert other["given"]["kv"] == "local" and "What ran" in (repeated / "report.html").read_text()
    for folder in (run, repeated, project.path / ".state"):
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                assert SECRET.encode() not in path.read_bytes(), path


def test_the_lines_of_an_unmodified_script_give_its_figures(project):
    metrics = {"slow": "(a+)+$", "bleu": r"epoch (?P<epoch>\d+): BLEU (\d+)"}
    result, run = project.train(
        kv="dist_sync", num_workers=2, script=str(SCRIPTS / "module_fit.py"), metrics=metrics
    )
    assert result.code == 0, result.output
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["accuracy"] > 0.5 and verdict["samples_per_s"] > 0, verdict
    assert "loss, samples per second" in verdict["figures"], verdict
    assert "figures   accuracy" in result.output
    dropped = "the metric slow is dropped on node1, node2, because its regular expression needs"
    assert any(warning.startswith(dropped) for warning in verdict["warnings"]), verdict
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    bleu = [
        (event["index"], event["epoch"], event["value"])
        for event in events
        if event["event"] == "metric" and event["name"] == "bleu"
    ]
    # The events of one look at a log have one entry for each epoch.
    assert sorted(bleu) == [(worker, epoch, 10 * epoch) for worker in (0, 1) for epoch in range(4)]
