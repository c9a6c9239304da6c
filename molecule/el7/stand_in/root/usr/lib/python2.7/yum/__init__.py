"""The part of yum 3's interface that Ansible's module yum calls, on rpm and dnf 4.

So the real module runs on the stand-in, with its own way to each command of yum.
"""

import fnmatch
import glob
import re
import subprocess

from yum import Errors

__version_info__ = (3, 4, 3)
FORM = "%{name}|%{epoch}|%{version}|%{release}|%{arch}"


def said(command):
    """Return the output of a command; a failure is an error of yum."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    if process.returncode:
        raise Errors.RepoError((err or out).decode("utf-8").strip())
    return out.decode("utf-8")


class Settings(object):
    """Settings that the module assigns."""

    proxy = fn = None
    disabled_plugins = _plugins = ()


class Package(object):
    """An installed or available package."""

    def __init__(self, line):
        self.name, epoch, self.version, self.release, self.arch = line.split("|")
        self.epoch = epoch.replace("(none)", "0")
        parts = (self.name, self.version, self.release, self.arch)
        self.ui_envra = ("" if self.epoch == "0" else self.epoch + ":") + "%s-%s-%s.%s" % parts
        self.provides = {self.name}

    def names(self):
        """Return all forms in which yum accepts the name of this package."""
        n, e, v, r, a = self.name, self.epoch, self.version, self.release, self.arch
        full = "%s-%s-%s.%s" % (n, v, r, a)
        forms = [n, n + "." + a, n + "-" + v, n + "-" + v + "-" + r, full]
        return forms + [e + ":" + full, "%s-%s:%s-%s.%s" % (n, e, v, r, a)]


class Packages(object):
    """A list of packages."""

    def __init__(self, load):
        self._load, self._packages = load, None

    def all(self):
        """Return the packages, which are read once."""
        if self._packages is None:
            self._packages = self._load()
        return self._packages

    def matchPackageNames(self, patterns):
        """Return (packages of these names, packages of these patterns, unknown names)."""
        found = ([], [], [])
        for pattern in patterns:
            match = [one for one in self.all() if fnmatch.filter(one.names(), pattern)]
            found[1 if re.search("[*?[]", pattern) else 0].extend(match)
            found[2].extend([] if match else [pattern])
        return found


class Repositories(object):
    """The repositories of the files in /etc/yum.repos.d, and the module's choice of them."""

    def __init__(self):
        self.options, self.repos = [], {}
        for path in glob.glob("/etc/yum.repos.d/*.repo"):
            with open(path) as lines:
                self.repos.update(
                    (name, path) for name in re.findall(r"(?m)^\[(.+)\]", lines.read())
                )

    def disableRepo(self, name):
        self._choose("disable", name)

    def enableRepo(self, name):
        self._choose("enable", name)

    def _choose(self, how, name):
        if name not in self.repos and not re.search("[*?[]", name):
            raise Errors.RepoError(
                "Error getting repository data for %s, repository not found" % name
            )
        self.options.append("--%srepo=%s" % (how, name))


class YumBase(object):
    """yum, as a module sees it."""

    def __init__(self):
        self.preconf, self.conf, self.repos = Settings(), Settings(), Repositories()
        self.plugins = Settings()
        self.rpmdb, self.pkgSack = Packages(self._installed), Packages(self._available)

    def _installed(self):
        return [Package(line) for line in said(["rpm", "-qa", "--qf", FORM + "\n"]).splitlines()]

    def _available(self):
        command = ["/usr/libexec/platform-python", "-s", "/usr/libexec/stand-in/dnf", "-q"]
        command += ["-c", self.preconf.fn] if self.preconf.fn else []
        command += ["--disableplugin=" + name for name in self.preconf.disabled_plugins]
        command += self.repos.options + ["repoquery", "--qf", FORM + "|%{provides}"]
        found = []
        for line in said(command).splitlines():
            if line.count("|") == 5:
                line, provided = line.rsplit("|", 1)
                found.append(Package(line))
            else:
                provided = line
            found[-1].provides.update(provided.split()[:1])
        return found

    def returnPackagesByDep(self, name):
        """Return the available packages that provide this; a version is not compared."""
        return [one for one in self.pkgSack.all() if name in one.provides]

    def returnInstalledPackagesByDep(self, name):
        """Return the installed packages that provide this."""
        try:
            lines = said(["rpm", "-q", "--whatprovides", "--qf", FORM + "\n", name])
        except Errors.RepoError:  # rpm has no such package
            return []
        return [Package(line) for line in lines.splitlines()]
