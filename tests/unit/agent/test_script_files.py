"""Files that a user's script writes: their folder, and the files that are collected."""

import base64
import io
import json
import os
import tarfile
import zipfile

import pytest

from mxcluster.agent import script_files
from mxcluster.agent.folder import JobFolder
from mxcluster.model.job_knobs import MpiOptions
from mxcluster.package import OWN_FOLDERS
from tests.plans import part_of
from tests.unit import statuses
from tests.unit.agent.jobs import files

WORKERS = ("worker-0", "worker-1")


@pytest.fixture
def prepared(tmp_path):
    """Return the prepared folder of a job with two workers and a script with a data file."""
    folder = JobFolder(str(tmp_path / "job"))
    script = io.BytesIO()
    with zipfile.ZipFile(script, "w") as packed:
        for name in ("train.py", "data/train.csv"):
            packed.writestr(name, "as it was sent\n")
    workers = [
        {"name": name, "role": "worker", "index": index, "folder": "%s/%s" % (OWN_FOLDERS, name)}
        for index, name in enumerate(WORKERS)
    ]
    plan = part_of(*workers, options={"collect_mb": 1})
    folder.prepare(files(plan, script=base64.b64encode(script.getvalue()).decode()))
    return folder


def write(folder, name, content="new"):
    path = folder.file(OWN_FOLDERS + "/" + name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(content)
    return path


def found(folder):
    result = script_files.find(folder, folder.file("out.tar"))
    return [name[len(OWN_FOLDERS) + 1 :] for name in sorted(result.names)], result.behind


def test_every_worker_has_its_own_copy_of_the_scripts_files(prepared):
    for worker in WORKERS:
        with open(prepared.file("%s/%s/data/train.csv" % (OWN_FOLDERS, worker))) as stream:
            assert stream.read() == "as it was sent\n"
    write(prepared, "worker-0/data/train.csv", "changed")
    with open(prepared.file(OWN_FOLDERS + "/worker-1/data/train.csv")) as stream:
        assert stream.read() == "as it was sent\n"


def test_only_new_and_changed_files_are_collected(prepared):
    assert found(prepared) == ([], [])
    write(prepared, "worker-0/model-0001.params")
    write(prepared, "worker-1/model-0001.params")
    write(prepared, "worker-1/out/log.txt", "")
    write(prepared, "worker-0/data/train.csv", "as it was sent!")  # longer
    write(prepared, "worker-1/data/train.csv", "as it was SENT\n")  # of the same length
    write(prepared, "worker-0/__pycache__/train.cpython-36.pyc")
    assert found(prepared) == (
        [
            "worker-0/data/train.csv",
            "worker-0/model-0001.params",
            "worker-1/data/train.csv",
            "worker-1/model-0001.params",
            "worker-1/out/log.txt",
        ],
        [],
    )


def test_files_beyond_the_size_limit_are_named_and_not_collected(prepared):
    for number in range(4):
        path = write(prepared, "worker-0/model-%d.params" % number, "x" * 400000)
        os.utime(path, (1000 + number, 1000 + number))
    write(prepared, "worker-0/history.csv")
    names, behind = found(prepared)
    assert names == [
        "worker-0/history.csv",
        "worker-0/model-2.params",
        "worker-0/model-3.params",
    ], "small files first, then the newest ones"
    (line,) = behind
    assert line.startswith("worker-0: 2 files") and "collect_mb=1" in line
    assert "model-1.params, model-0.params" in line
    assert prepared.file("files/worker-0") in line, line


def test_links_and_fifos_are_named_and_not_collected(prepared, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("private")
    own = prepared.file(OWN_FOLDERS + "/worker-0/")
    os.symlink(str(tmp_path / "secret"), own + "folder")
    os.symlink(str(tmp_path / "secret" / "key"), own + "file")
    os.mkfifo(own + "fifo")
    names, behind = found(prepared)
    assert names == [] and len(behind) == 1 and "(not regular files): " in behind[0], behind
    assert all(name in behind[0] for name in ("folder", "file", "fifo")), behind


def test_a_folder_replaced_by_a_link_is_not_followed(prepared, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("private")
    os.rename(prepared.file(OWN_FOLDERS), prepared.file("old"))
    os.symlink(str(tmp_path / "secret"), prepared.file(OWN_FOLDERS))
    assert found(prepared) == ([], [])


def test_logs_take_precedence_on_a_nearly_full_disk(prepared, monkeypatch):
    write(prepared, "worker-1/model.params")
    monkeypatch.setattr(script_files, "room", lambda output: script_files.SPARE)
    names, behind = found(prepared)
    assert names == [] and "model.params" in behind[0] and "free disk space" in behind[0]


def test_script_files_are_collected_with_the_other_files(job, tmp_path):
    job.start(
        "mkdir -p files/worker-0; echo weights > files/worker-0/model.params; ln -s / "
        "files/worker-0/root"
    )
    job.end()
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    with tarfile.open(str(tmp_path / "out.tar")) as archive:
        assert archive.extractfile("files/worker-0/model.params").read() == b"weights\n"
    assert len(answer["behind"]) == 1 and "root" in answer["behind"][0]


@pytest.mark.parametrize(
    "wanted, reason, comes",
    [
        ("always", "failed", True),
        ("success", "done", True),
        ("success", "failed", False),
        ("failure", "failed", True),
        ("failure", "done", False),
    ],
)
def test_mpi_output_decides_by_the_end_of_the_job(prepared, wanted, reason, comes):
    plan = prepared.plan()
    plan = plan.replaced(options=MpiOptions(mpi_command="true", mpi_output=wanted))
    with open(prepared.file("plan.json"), "w") as stream:
        json.dump(plan.encode(), stream)
    prepared.write_status(statuses.status({"processes": []}).ended_by(reason, 2.0))
    write(prepared, "worker-0/out.txt")
    result = script_files.find(prepared, prepared.file("out.tar"))
    assert bool(result.names) == comes
    assert any("mpi_output=%s" % wanted in line for line in result.behind) != comes
