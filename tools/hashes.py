"""Write the sha256 digests of all wheels for .venv into the requirements files.

Run `python tools/hashes.py` after a change of the requirements. A requirement is a line
`name==version`, with an environment marker if needed. Below each requirement, the script writes the
hashes of the wheels on pip's package index for Python 3.10 to 3.13 on Linux x86_64.
tools/venv.sh installs only these wheels (`pip install --require-hashes`).
"""

import pathlib
import re
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[1]
FILES = sorted(PROJECT.glob("requirements/*.txt"))
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13))
# The hashes cover wheels for all these glibc versions, because the user's machine is unknown.
PLATFORMS = ["manylinux_2_%d_x86_64" % minor for minor in range(45, 4, -1)] + [
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
]
REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[a-z,-]+\])?==(?P<version>[^\s;\\]+)[^\\\n]*"
)
HASH = "    --hash=sha256:"


def requirements(text):
    """Return {line: (name, version)} of a requirements file, without continuation lines."""
    lines = [line.rstrip(" \\") for line in text.splitlines()]
    return {
        line: match.group("name", "version")
        for line in lines
        for match in [REQUIREMENT.match(line)]
        if match
    }


def written(text, hashes):
    """Return the text of a requirements file with `hashes` in place of the old hashes.

    Args: `text` the present text; `hashes` {line of a requirement: [sha256, ...]}.
    """
    result = []
    for line in (line.rstrip(" \\") for line in text.splitlines() if not line.startswith(HASH)):
        result.append(" \\\n".join([line] + [HASH + digest for digest in hashes.get(line, [])]))
    return "\n".join(result) + "\n"


def main():
    """Write the hashes into all requirements files. Exits if a requirement has no wheel."""
    # Use pip's own finder, one for each Python, because it applies pip's index, settings and wheel
    # tags.
    from pip._internal.commands.download import DownloadCommand
    from pip._internal.models.target_python import TargetPython

    command = DownloadCommand("download", "")
    options, _ = command.parse_args(["--only-binary", ":all:"])
    with command.main_context():
        session = command.get_default_session(options)
        finders = [
            command._build_package_finder(
                options, session, TargetPython(PLATFORMS, python, implementation="cp")
            )
            for python in PYTHONS
        ]
        for path in FILES:
            hashes = {}
            for line, (name, version) in requirements(path.read_text()).items():
                links = [
                    candidate.link
                    for finder in finders
                    for candidate in finder.find_all_candidates(name)
                    if str(candidate.version) == version
                ]
                hashes[line] = sorted({link.hash for link in links if link.hash_name == "sha256"})
                if not hashes[line]:
                    sys.exit(
                        "mxcluster: %s: the index has no wheel of %s %s with a sha256. Choose "
                        "another version" % (path.name, name, version)
                    )
            path.write_text(written(path.read_text(), hashes))


if __name__ == "__main__":
    main()
