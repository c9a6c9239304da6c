"""The user documentation has valid links, short lines and existing commands."""

import pathlib
import re
import subprocess

import pytest
import yaml

from mxcluster.ansible import knobs
from tests.docs import pages

PROJECT = pathlib.Path(__file__).resolve().parents[2]
README = PROJECT / "README.md"
INDEX = PROJECT / "docs/README.md"
DOCS = sorted((PROJECT / "docs").glob("*.md"))
TOP = [README, PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"]
ROLES = sorted((PROJECT / "roles").glob("*/README.md"))


def name_of(path):
    return str(path.relative_to(PROJECT))


each_page = pytest.mark.parametrize("path", TOP + DOCS, ids=name_of)


@pytest.mark.parametrize("path", TOP + DOCS + ROLES, ids=name_of)
def test_links_resolve(path):
    assert not pages.broken_links(path)


def test_the_readme_is_short():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert not pages.long_paragraphs("README.md", text)


@each_page
def test_lines_and_paragraphs_are_short(path):
    text = path.read_text()
    assert not pages.long_lines(name_of(path), text)
    if path.name != "CHANGELOG.md":
        assert not pages.long_paragraphs(name_of(path), text)


@pytest.mark.parametrize("path", DOCS, ids=name_of)
def test_a_page_is_short(path):
    text = path.read_text()
    assert text.startswith(pages.GENERATED) or len(text.splitlines()) <= 200


def test_the_list_of_pages_has_every_page():
    linked = {target.partition("#")[0] for target in pages.links(INDEX.read_text())}
    assert {path.name for path in DOCS} <= linked | {INDEX.name}
    assert name_of(INDEX) in pages.links(README.read_text())


@each_page
def test_shell_blocks_say_what_runs_them(path):
    assert not pages.unproven_blocks(name_of(path), path.read_text(), PROJECT)


@each_page
def test_commands_exist(path):
    """Check playbooks, make targets and names given with -e, in blocks and in inline code."""
    text = path.read_text()
    code = [content for _, _, content in pages.blocks(text, ("console", "sh", "", "text"))]
    code += re.findall(r"`([^`\n]+)`", "\n".join(line for _, line in pages.prose(text)))
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    playbooks = set(knobs.PLAYBOOKS)
    known = {name for names in knobs.PLAYBOOKS.values() for name in names} | set(knobs.OF_A_HOST)
    known |= {"name"}  # of "-e name=value"
    for role in (PROJECT / "roles").glob("*/defaults/main.yml"):
        known |= set(yaml.safe_load(role.read_text()) or {})
    for command in code:
        for target in pages.TARGET.findall(command):
            assert target in targets, command
        for playbook in re.findall(r"ansible-playbook[^\n]* (\w+\.yml)", command):
            assert playbook in playbooks, command
        if "docker" in command:
            continue
        for extra in pages.EXTRA.findall(command):
            assert extra in known, command


@pytest.mark.parametrize(
    "name",
    [
        "docs/architecture.md",
        "docs/development.md",
        "docs/benchmarks.md",
        "docs/recipes.md",
        "docs/recipes-nodes.md",
        "CONTRIBUTING.md",
    ],
)
def test_named_files_exist(name):
    """Check files and folders of the project that a page names in code."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=PROJECT, text=True).splitlines()
    missing = set(pages.missing_files((PROJECT / name).read_text(), tracked))
    # launch.py belongs to MXNet; the others are examples.
    examples = {
        "playbooks/space.yml",
        "space.yml",
        "python/mxcluster/training/kvstore/dcasync.py",
        "roles/mxnet/tasks/system_<family>.yml",
    }
    assert not missing - examples - {"launch.py"}


@pytest.mark.parametrize("name", ["docs/recipes.md", "docs/recipes-nodes.md"])
def test_named_members_exist(name):
    """Functions, classes and fields that a recipe names stand in the files of its row."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=PROJECT, text=True).splitlines()
    kinds = (".py", ".yml", ".html", ".js")
    texts = {path: (PROJECT / path).read_text() for path in tracked if path.endswith(kinds)}
    missing = set(pages.missing_names((PROJECT / name).read_text(), texts))
    examples = ("args.grad_clip", "dc_lambda", "MXCLUSTER_DC_LAMBDA", "cuNNN")
    assert not [one for one in missing if one.split(":")[0] not in examples]


# Negative cases of each check; they show that a check without findings works.

GOOD = """# One page

Read [the other](other.md#two-words) and [this](#one-page). `[no](link.md)`

<!-- run by: tests/some.py -->
```console
$ ansible-playbook train.yml
```

<!-- not run: it needs a GPU -->
```sh
make molecule
```
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "train.yml").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "some.py").write_text("run('train.yml')\n")
    (tmp_path / "other.md").write_text("# Two `words`\n")
    return tmp_path


@pytest.mark.parametrize(
    "old,new,words",
    [
        ("", "", None),
        ("other.md#two-words", "gone.md", "gone.md does not exist"),
        ("other.md#two-words", "other.md#three", "no heading for #three"),
    ],
)
def test_a_broken_link_is_found(project, old, new, words):
    page = project / "page.md"
    page.write_text(GOOD.replace(old, new) if old else GOOD)
    problems = pages.broken_links(page)
    assert [words in problem for problem in problems] == ([True] if words else [])


@pytest.mark.parametrize(
    "old,new,words",
    [
        ("", "", None),
        ("<!-- run by: tests/some.py -->", "", "the line before"),
        ("tests/some.py", "tests/gone.py", "tests/gone.py does not exist"),
        ("ansible-playbook train.yml", "make bench", "does not run bench"),
        ("ansible-playbook train.yml", "mxcluster launch", "does not run mxcluster launch"),
    ],
)
def test_a_block_that_nothing_runs_is_found(project, old, new, words):
    problems = pages.unproven_blocks("page.md", GOOD.replace(old, new) if old else GOOD, project)
    assert [words in problem for problem in problems] == ([True] if words else [])


def test_long_lines_and_paragraphs_are_found():
    long = "word " * 21
    assert len(pages.long_lines("page", "%s\n\n| %s |\n\n```\n%s\n```\n" % ((long,) * 3))) == 1
    assert not pages.long_paragraphs("page", "a\n" * 5 + "\n" + "- b\n" * 9)
    assert len(pages.long_paragraphs("page", "a\n" * 6)) == 1
    assert len(pages.long_paragraphs("page", "- a\n" + "  b\n" * 5)) == 1


def test_a_missing_name_is_found():
    row = "| `job/plan.py` | the row in `TABLE`, as `make_rows` | |"
    texts = {"python/job/plan.py": "TABLE = 1", "python/job/other.py": "def make_rows(): ..."}
    assert list(pages.missing_names(row, texts)) == ["make_rows: job/plan.py"]


def test_a_missing_file_is_found():
    tracked = ["python/mxcluster/job/plan/ports.py", "docs/one.md"]
    text = "`plan/ports.py` `docs/` `ports.py` `runs/<job>/` `.venv/` `python -m x.py`\n"
    assert not pages.missing_files(text, tracked)
    assert pages.missing_files("`plan/port.py`, `doc/`\n", tracked) == ["plan/port.py", "doc/"]
