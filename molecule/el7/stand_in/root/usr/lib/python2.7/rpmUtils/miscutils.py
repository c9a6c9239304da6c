"""Names and versions of RPMs."""

import subprocess


def splitFilename(name):
    """Return (name, version, release, epoch, architecture) of "epoch:name-version-release.arch"."""
    rest, arch = name.rsplit(".", 1)
    rest, version, release = rest.rsplit("-", 2)
    epoch, _, rest = rest.rpartition(":")
    return rest, version, release, epoch, arch


def compareEVR(first, second):
    """Return -1, 0 or 1, as rpm compares two (epoch, version, release)."""
    for one, other in zip(first, second):
        order = 'print(rpm.vercmp("%s", "%s"))' % (one or "0", other or "0")
        found = int(subprocess.check_output(["rpm", "--eval", "%{lua:" + order + "}"]))
        if found:
            return found
    return 0
