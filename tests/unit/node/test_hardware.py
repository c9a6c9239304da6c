"""The hardware of a node from files of the kernel."""

from mxcluster.node import hardware


def test_this_machine_tells_its_hardware():
    found = hardware.look()
    assert found.cores >= 1 and found.memory_mb > 100 and found.kernel and found.system


def test_missing_and_odd_files_give_unknown_values(tmp_path):
    absent = str(tmp_path / "absent")
    assert hardware.cpu(absent) == ("", 0) and hardware.memory_mb(absent) == 0
    assert hardware.gpu_names(absent) == []
    (tmp_path / "meminfo").write_bytes(b"MemTotal:       16384000 kB\n\xff\n")
    assert hardware.memory_mb(str(tmp_path / "meminfo")) == 16000


def test_gpus_are_named_by_the_driver(tmp_path):
    for bus, text in (("0000:3b:00.0", "Model: \t\t Tesla V100-SXM2\nIRQ: 1\n"), ("0001", "x\n")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(text)
    assert hardware.gpu_names(str(tmp_path)) == ["Tesla V100-SXM2", "unknown GPU"]
