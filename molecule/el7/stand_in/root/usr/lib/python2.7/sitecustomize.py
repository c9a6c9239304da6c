"""Give Ansible's modules the kernel of /etc/stand-in/kernels, as the stand-in for uname does."""

import os

_real = os.uname


def uname():
    """Return os.uname() with the release of the stand-in's kernel."""
    known = list(_real())
    try:
        with open("/etc/stand-in/kernels") as lines:
            known[2] = lines.readline().strip() or known[2]
    except (IOError, OSError):
        pass
    return tuple(known)


os.uname = uname
