"""Extra packages for scripts: allowed requirements, the choice of versions, and its cache."""

import hashlib
import json
import zipfile

import pytest

from mxcluster.cluster import extra_packages, wheels
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.software import Build, Environment

BUILD = Build(
    python=["3.6"],
    pip="pip==21.3.1",
    wheels=["mxnet-cu92==1.2.1.post1", "numpy==1.14.6", "idna==2.6"],
)
NEWER = Build(python=["3.11"], pip="pip==25.0.1", wheels=["mxnet==1.9.1", "numpy==1.23.5"])
ENVIRONMENT = Environment(builds=[BUILD, NEWER], hashes={"numpy==1.14.6": ["0" * 64]})


class Index:
    """A package index of wheels, {"name_version": its file}, that records its queries."""

    def __init__(self, *known):
        self.known, self.asked = known, []

    def __call__(self, folder, names, pinned, python, store):
        self.asked.append((sorted(names), pinned, python))
        for full in self.known:
            with open("%s/%s-py3-none-any.whl" % (folder, full), "w") as wheel:
                wheel.write(full)


def wish(*texts):
    return extra_packages.of_knob(list(texts), "/")


@pytest.mark.parametrize(
    "value, found",
    [("", []), ("six, tqdm>=4,<5", ["six", "tqdm>=4,<5"]), ("six tqdm", ["six", "tqdm"])],
)
def test_requirements_are_parsed_and_sorted(value, found):
    assert [one.text for one in extra_packages.of_knob(value, "/")] == found


def test_a_requirements_file_with_hashes(tmp_path):
    (tmp_path / "mine.txt").write_text(
        "# of mine\n\nsix==1.16.0 \\\n    --hash=sha256:%s \\\n    --hash=sha256:%s\n"
        "tqdm  # a bar\n" % ("a" * 64, "b" * 64)
    )
    assert [one[:2] for one in extra_packages.of_knob("mine.txt", str(tmp_path))] == [
        ("six==1.16.0", ["a" * 64, "b" * 64]),
        ("tqdm", []),
    ]
    with pytest.raises(BadInput, match="cannot read .*other.txt .*: correct the path"):
        extra_packages.of_knob("other.txt", str(tmp_path))


@pytest.mark.parametrize(
    "value, words",
    [
        (["mxnet==1.9.1"], "mxnet is refused, .*mxnet_version and cuda_version"),
        (["MXNet_cu92"], "MXNet_cu92 is refused"),
        (["--requirement=other.txt"], "is refused: write the packages of that file"),
        (["-c other.txt"], "'-c other.txt' is refused: write the versions of that file"),
        (["six===1.16"], "'six===1.16' is refused: write NAME==VERSION with two signs ="),
        (["six", "Six"], "occurs twice"),
        (["git+https://example.org/x"], "is refused: write NAME"),
        (["six; python_version < '3.8'"], "without URLs, paths, conditions"),
        (["six --pre"], "is refused: write"),
        (["numpy==abc"], "'numpy==abc' is refused: write .* a version of PEP 440"),
        ({"six": "1"}, "a list"),
    ],
)
def test_a_forbidden_requirement_is_refused(value, words):
    with pytest.raises(BadInput, match=words):
        extra_packages.of_knob(value, "/")


def test_an_error_in_a_requirements_file_names_its_line(tmp_path):
    """Joined lines once shifted the numbers of all later lines."""
    (tmp_path / "mine.txt").write_text(
        "six==1.16.0 \\\n    --hash=sha256:%s\n\ntqdm===4\r\n-r other.txt\n-c that.txt\\"
        % ("a" * 64)
    )
    with pytest.raises(BadInput) as refusal:
        extra_packages.of_knob("mine.txt", str(tmp_path))
    told = str(refusal.value).split("\n")
    assert [line.split(" is refused")[0].split("mine.txt, ")[1] for line in told] == [
        "line 4: 'tqdm===4'",
        "line 5: '-r other.txt'",
        "line 6: '-c that.txt'",
    ]


@pytest.mark.parametrize("text", ["numpy>=1.20", "idna>2.6"])
def test_a_requirement_that_conflicts_with_mxnets_is_refused(tmp_path, text):
    with pytest.raises(
        BadInput,
        match="mxnet-cu92==1.2.1.post1 on Python 3.6 needs (numpy==1.14.6|idna==2.6). "
        "Remove (numpy|idna), or give",
    ):
        extra_packages.extended(ENVIRONMENT, wish(text), "3.6", str(tmp_path), Index())


def test_versions_are_chosen_once_and_kept(tmp_path):
    index = Index("tqdm-4", "six-1", "numpy-1.14.6")
    found = extra_packages.extended(ENVIRONMENT, wish("tqdm", "six"), "3.6", str(tmp_path), index)
    (build,) = found.builds
    assert build == BUILD.replaced(wheels=[*BUILD.wheels, "six==1", "tqdm==4"])
    for pin, name in (("six==1", "six-1-py3-none-any.whl"), ("tqdm==4", "tqdm-4-py3-none-any.whl")):
        assert found.hashes[pin] == [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()]
        assert wheels.find(
            str(tmp_path), "%s --hash=sha256:%s" % (pin, found.hashes[pin][0]), "3.6"
        )
    assert index.asked == [(["six", "tqdm"], BUILD.wheels + [BUILD.pip], "3.6")]
    assert (
        extra_packages.extended(ENVIRONMENT, wish("six", "tqdm"), "3.6", str(tmp_path), index)
        == found
        and len(index.asked) == 1
    )
    assert not [path for path in tmp_path.iterdir() if path.is_dir() or path.name.endswith(".part")]
    # Another requirement, Python or build needs another choice. No requirement, no query.
    for names, python in ((["six"], "3.6"), (["tqdm", "six"], "3.11")):
        given = ENVIRONMENT, wish(*names), python, str(tmp_path), index
        assert extra_packages.extended(*given, known_only=True) is None
    assert extra_packages.extended(ENVIRONMENT, [], "3.6", str(tmp_path), index) == ENVIRONMENT
    assert len(index.asked) == 1


def test_a_layer_has_the_packages_alone(tmp_path):
    index = Index("tqdm-4", "six-1", "numpy-1.14.6")
    known = ENVIRONMENT.replaced(hashes={"numpy==1.14.6": ["0" * 64], BUILD.pip: ["1" * 64]})
    (tmp_path / "mine.txt").write_text("tqdm\nsix\n")
    wanted = extra_packages.of_file(str(tmp_path / "mine.txt"), "requirements")
    given = known, wanted, "3.6", str(tmp_path), index
    assert extra_packages.layer(*given, known_only=True) is None and index.asked == []
    found = extra_packages.layer(*given)
    assert found.builds == [Build(python=["3.6"], pip=BUILD.pip, wheels=["six==1", "tqdm==4"])]
    assert set(found.hashes) == {"six==1", "tqdm==4", BUILD.pip}
    assert extra_packages.layer(*given, known_only=True) == found and len(index.asked) == 1
    # The choice is that of mxnet_packages, so a bundle with these packages serves both.
    assert extra_packages.extended(known, wish("six", "tqdm"), *given[2:], known_only=True)
    # Another wheel gives another layer.
    (tmp_path / "mine.txt").write_text("six\n")
    other = extra_packages.of_file(str(tmp_path / "mine.txt"), "requirements")
    assert extra_packages.layer(known, other, *given[2:4], Index("six-1")).digest != found.digest
    assert extra_packages.layer(known, [], *given[2:]) is None
    assert extra_packages.layer(known, wanted, "3.9", *given[3:]) is None


@pytest.mark.parametrize(
    "member", ["numpy/__init__.py", "mxnet.py", "evil-1.data/purelib/numpy/core.py"]
)
def test_a_wheel_with_a_module_of_the_environment_is_refused(tmp_path, member):
    def index(folder, names, pinned, python, store):
        with zipfile.ZipFile(folder + "/evil-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("evil/__init__.py", "")
            wheel.writestr("evil-1.dist-info/METADATA", "")
            wheel.writestr(member, "")

    (tmp_path / "mine.txt").write_text("evil\n")
    wanted = extra_packages.of_file(str(tmp_path / "mine.txt"), "requirements")
    with pytest.raises(
        BadInput, match="requirements: the wheel of evil==1 contains the module (numpy|mxnet), and"
    ):
        extra_packages.layer(ENVIRONMENT, wanted, "3.6", str(tmp_path / "store"), index)
    assert list((tmp_path / "store").iterdir()) == []


def test_messages_name_the_knob_of_the_packages(tmp_path):
    (tmp_path / "mine.txt").write_text("numpy>=1.20\n")
    wanted = extra_packages.of_file(str(tmp_path / "mine.txt"), "requirements")
    with pytest.raises(BadInput, match="^requirements: numpy>=1.20 is refused"):
        extra_packages.layer(ENVIRONMENT, wanted, "3.6", str(tmp_path), Index())
    with pytest.raises(BadInput, match="^requirements: the controller cannot read .*none.txt"):
        extra_packages.of_file(str(tmp_path / "none.txt"), "requirements")


def test_a_torn_choice_is_made_again(tmp_path):
    index = Index("six-1")
    extra_packages.extended(ENVIRONMENT, wish("six"), "3.6", str(tmp_path), index)
    (path,) = tmp_path.glob("packages-py3.6-*.json")
    assert json.loads(path.read_text())["asked"] == ["six"]
    path.write_text(path.read_text()[:-10])
    extra_packages.extended(ENVIRONMENT, wish("six"), "3.6", str(tmp_path), index)
    assert len(index.asked) == 2


def make_index(folder, needs):
    """Make a folder with a wheel of version 1 of each package in `needs`, {name: [need, ...]}."""
    folder.mkdir()
    for name, needed in needs.items():
        with zipfile.ZipFile(folder / (name + "-1-py3-none-any.whl"), "w") as wheel:
            lines = ["Metadata-Version: 2.1", "Name: " + name, "Version: 1"]
            lines += ["Provides-Extra: slack"] + ["Requires-Dist: " + need for need in needed]
            wheel.writestr(name + "-1.dist-info/METADATA", "\n".join(lines))
            wheel.writestr(name + "-1.dist-info/WHEEL", "Wheel-Version: 1.0")


@pytest.mark.slow
def test_a_package_that_needs_another_numpy_is_refused_with_the_conflict(tmp_path, monkeypatch):
    make_index(tmp_path / "index", {"sharp": ["numpy>=2"], "numpy": []})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    given = str(tmp_path), ["sharp"], ["numpy==1"], "3.11", str(tmp_path / "index")
    with pytest.raises(MxclusterError, match=r"the packages sharp conflict .*\(numpy==1\): choose"):
        extra_packages.download(*given)


@pytest.mark.slow
def test_pip_evaluates_conditions_for_the_nodes_python(tmp_path):
    """pip itself evaluates them for the controller's Python."""
    needs = {
        "tqdm": ["old; python_version < '3.7'", "newer; python_version >= '3.8'"],
        "old": ["deep; python_full_version < '3.7.0'"],
        "deep": ["slack; extra == 'slack'"],
        "newer": [],
        "slack": [],
    }
    make_index(tmp_path / "index", needs)
    for text, python, found in (
        ("tqdm", "3.6", {"tqdm", "old", "deep"}),
        ("tqdm", "3.11", {"tqdm", "newer"}),
        ("deep[slack]", "3.11", {"deep", "slack"}),
    ):
        folder = tmp_path / (text + python)
        folder.mkdir()
        what = ["--no-index", "--find-links", str(tmp_path / "index"), text]
        assert wheels.pip_download(str(folder), python, what) is None
        assert {path.name.split("-")[0] for path in folder.iterdir()} == found


def test_a_package_that_requires_another_mxnet_is_refused(tmp_path):
    index = Index("gluonnlp-1", "mxnet-1")
    with pytest.raises(
        BadInput, match="requires mxnet==1, which conflicts with mxnet-cu92==1.2.1.post1"
    ):
        extra_packages.extended(ENVIRONMENT, wish("gluonnlp"), "3.6", str(tmp_path), index)
    assert list(tmp_path.iterdir()) == []


def test_a_digest_outside_the_requirements_file_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("six==1 --hash=sha256:%s\n" % ("a" * 64))
    wanted = extra_packages.of_knob("mine.txt", str(tmp_path))
    with pytest.raises(
        BadInput,
        match="six==1 for Python 3.6 has the sha256 .* which the requirements file does not list",
    ):
        extra_packages.extended(ENVIRONMENT, wanted, "3.6", str(tmp_path / "store"), Index("six-1"))
    assert list((tmp_path / "store").iterdir()) == []


def test_a_package_without_a_wheel_is_refused_by_name(tmp_path, monkeypatch):
    said = "ERROR: no version\nERROR: No matching distribution found for pycocotools==2.0.0"
    monkeypatch.setattr(wheels, "pip_download", lambda *_: said)
    with pytest.raises(
        MxclusterError, match="no wheel of pycocotools==2.0.0 for Python 3.6 on Linux x86_64"
    ):
        extra_packages.extended(ENVIRONMENT, wish("pycocotools==2.0.0"), "3.6", str(tmp_path))


def test_pip_gets_mxnets_requirements_as_constraints(tmp_path, monkeypatch):
    seen = []

    def pip(folder, python, what):
        with open(what[1]) as constraints:
            seen.append((python, constraints.read().split(), what[2:]))

    monkeypatch.setattr(wheels, "pip_download", pip)
    extra_packages.download(
        str(tmp_path), ["six"], ["mxnet==1.9.1", "numpy==1.23.5"], "3.11", "/store"
    )
    assert seen == [("3.11", ["mxnet==1.9.1", "numpy==1.23.5"], ["--find-links", "/store", "six"])]
