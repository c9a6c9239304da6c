"""The command yum of the stand-in: dnf 4 with the habits of yum 3.4.3 that hurt its callers.

docs/yum.md lists the habits. The file runs on Python 2.7, and lies where CentOS 7 has yum's own.
Source: yummain.py, cli.py, yumcommands.py, yum/repos.py and yum/yumRepo.py of yum 3.4.3.
"""

from __future__ import print_function

import errno
import fnmatch
import glob
import optparse
import os
import re
import subprocess
import sys
import time

ROOT = os.environ.get("STAND_IN_ROOT", "/")  # a unit test has a folder of its own
LOCK = os.path.join(ROOT, "var/run/yum.pid")
DNF = [
    os.path.join(ROOT, "usr/libexec/platform-python"),
    "-s",
    os.path.join(ROOT, "usr/libexec/stand-in/dnf"),
    "--setopt=best=1",  # yum 3 installs the newest version or fails
]
FLAGS = (
    "-t --tolerant -C --cacheonly --showduplicates --show-duplicates -q --quiet -v --verbose -y "
    "--assumeyes --assumeno --version --obsoletes --noplugins --nogpgcheck --skip-broken "
    "--downloadonly --bugfix --security"
).split()
VALUES = (
    "-c --config -R --randomwait -d --debuglevel -e --errorlevel --rpmverbosity --installroot "
    "--enablerepo --disablerepo -x --exclude --disableexcludes --disableincludes --disableplugin "
    "--enableplugin --color --releasever --downloaddir --setopt --advisory --bzs --cves "
    "--sec-severity"
).split()
COMMANDS = (
    "install update distro-sync info list erase remove autoremove groups makecache clean provides "
    "whatprovides check-update search upgrade localinstall localupdate resolvedep shell deplist "
    "help repolist reinstall downgrade version history check load-transaction swap repo-pkgs "
    "updateinfo update-minimal fssnapshot fs versionlock"
).split()
# Of a name and a version. yum 3 computes both from its list, for 80 columns.
WIDTHS = (31, 15)


class Refused(Exception):
    """yum 3 ends with status 1."""


class Parser(optparse.OptionParser):
    """The options of yum 3, which knows fewer than dnf."""

    def __init__(self):
        optparse.OptionParser.__init__(self, usage="yum [options] COMMAND", add_help_option=False)
        self.given = []  # pairs of an option and its value, in their order
        for name in FLAGS:
            self.add_option(name, action="callback", callback=self.keep)
        for name in VALUES:
            self.add_option(name, action="callback", callback=self.keep, type="string")

    def keep(self, _option, name, value, _parser):
        """Keep an option of the command line."""
        self.given.append((name, value))

    def error(self, msg):
        raise Refused("Command line error: " + msg)


def repositories():
    """Return {id: {option: value}} of the repositories of the system."""
    found = {}
    for path in glob.glob(os.path.join(ROOT, "etc/yum.repos.d/*.repo")):
        with open(path) as lines:
            for line in lines:
                section = re.match(r"\[(.+)\]", line)
                if section:
                    known = found.setdefault(section.group(1), {})
                elif "=" in line and not line.startswith("#"):
                    name, value = line.split("=", 1)
                    known[name.strip()] = value.strip()
    return found


def chosen(value, known):
    """Return the ids of an option for repositories. Raises Refused for an unknown id.

    In a list with a comma, and in a pattern, yum 3 skips an unknown id without a word.
    """
    if not re.search(r"[,*?[]", value):
        if value not in known:
            text = "Error getting repository data for %s, repository not found"
            raise Refused("\n\n" + text % value)
        return [value]
    patterns = [one.strip() for one in value.split(",")]
    return sorted(
        one for one in known if any(fnmatch.fnmatchcase(one, pattern) for pattern in patterns)
    )


def stale(words, known):
    """Return options for dnf, so that `list` reads a cache of any age.

    By default (metadata_expire_filter=read-only:present) yum 3 loads the list of a repository only
    without a cache, even if the file of the repository is newer than the cache.
    """
    if words[0] not in ("list", "info") or words[1:2] == ["updates"]:
        return []
    cached = [one for one in known if known[one].get("metadata_expire_filter") != "never"]
    return ["--setopt=%s.metadata_expire=-1" % one for one in sorted(cached)]


def arguments(given, words, known):
    """Return the arguments for dnf. Args: `given` and `words` of the command line."""
    found = []
    for name, value in given:
        if name in ("--enablerepo", "--disablerepo"):
            ids = chosen(value, known)
            found += ["%s=%s" % (name, ",".join(ids))] if ids else []
        elif value is None:
            found.append(name)
        else:
            found += ["%s=%s" % (name, value)] if name.startswith("--") else [name, value]
    return stale(words, known) + found + words


def broken(line):
    """Return a line of a list as yum 3 prints it into a pipe: a long column breaks the line."""
    words = line.split()
    if len(words) != 3 or line.startswith(" "):
        return line
    text, start = "", 0
    for word, width in zip(words, WIDTHS):
        start += width + 1
        text += word.ljust(width + 1) if len(word) <= width else word + "\n" + " " * start
    return text + words[2]


def lacking(err):
    """Return the errors of dnf with the words of yum 3 for a missing dependency."""
    found = re.findall(r"nothing provides (.+) needed by (\S+)", err)
    text = "Error: Package: %s\n           Requires: %s\n"
    return "".join(text % (package, name) for name, package in found) or err


def owner():
    """Return the pid of the living process that has yum's lock, or None."""
    try:
        with open(LOCK) as file:
            pid = int(file.readline())
        os.kill(pid, 0)
    except (IOError, OSError, ValueError):
        return None
    return pid


def take_lock():
    """Wait for yum's lock, and take it."""
    told = False
    own = "%s.%d" % (LOCK, os.getpid())
    with open(own, "w") as file:
        file.write("%d\n" % os.getpid())
    while True:
        try:
            os.link(own, LOCK)  # the lock has its pid from the beginning
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        else:
            os.unlink(own)
            return
        pid = owner()
        if pid is None:
            os.unlink(LOCK)
            continue
        if not told:
            text = (
                "Existing lock %s: another copy is running as pid %d.\n"
                "Another app is currently holding the yum lock; waiting for it to exit..."
            )
            print(text % (LOCK, pid), file=sys.stderr)
            told = True
        time.sleep(0.5)


def write(stream, text):
    """Write a text to a stream of Python 2 or 3."""
    getattr(stream, "buffer", stream).write(text.encode("utf-8"))
    stream.flush()


def run(given, words):
    """Run a command of yum; return its status."""
    names = [name for name, _ in given]
    if "--version" in names:
        print("3.4.3\n  a stand-in of mxcluster: dnf 4 with the habits of yum 3")
        return 0
    if not words or words[0] not in COMMANDS:
        text = "No such command: %s. Please use /usr/bin/yum --help"
        raise Refused(text % " ".join(words[:1]) if words else "You need to give some command")
    quiet = "-q" in names or "--quiet" in names
    if not quiet:
        print("Loaded plugins: stand-in of mxcluster for yum 3, which calls dnf 4")
        sys.stdout.flush()
    command = DNF + arguments(given, words, repositories())
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = [text.decode("utf-8") for text in process.communicate()]
    if words[0] in ("list", "check-update"):
        out = "".join(broken(line) + "\n" for line in out.splitlines())
    if words[0] != "check-update" or not quiet:  # the status alone, since EL 7.1 (BZ 1133979)
        write(sys.stdout, out)
    write(sys.stderr, lacking(err))
    return process.returncode


def main(command_line):
    """Return the status of yum. Args: `command_line` its arguments."""
    parser = Parser()
    is_locked = False
    try:
        words = parser.parse_args(command_line)[1]
        if os.access(os.path.dirname(LOCK), os.W_OK):  # another user than root has another lock
            take_lock()
            is_locked = True
        return run(parser.given, words)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    finally:
        if is_locked:
            os.unlink(LOCK)
