"""Define the shapes of names and other words that control a program, such as paths and versions.

Each shape accepts exact forms only. A node, a file or a user tells these words, and they become
parts of commands, paths and files of other hosts.
"""

import re
from typing import Tuple

from mxcluster.model.shapes import matching, passing

MOST_GPU = 1023  # the highest number of a GPU
MOST_CPU = 8191  # the highest number of a CPU; Linux supports 8192

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_KEY = (
    r"(ssh-ed25519|ssh-rsa|ssh-dss|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com"
    r"|sk-ecdsa-sha2-nistp256@openssh\.com) [A-Za-z0-9+/]+={0,2}"
)

public_key = matching(
    _KEY, "a public ssh key (type and base64, without options or a comment)", 20000
)
# Linux allows 15 bytes without a blank and a slash. A brace could begin a template of Ansible, and
# a minus sign an option of a program.
interface_name = passing(
    str,
    lambda value: (
        value.isprintable()
        and re.fullmatch(r"(?!-|\.{1,2}$)[^\s/{}]+", value)
        and len(value.encode("utf-8")) <= 15
    ),
    "the name of a network interface",
)
hostname = matching(r"%s(\.%s)*" % (_LABEL, _LABEL), "a host name", 253)
# A host of the inventory. The name is also the name of a folder.
host = matching(r"(?!\.{1,2}$)[^/\x00-\x1f\x7f-\x9f]+", "the name of a host", 253)
user_name = matching(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}\$?", "the name of a user")
version = matching(r"[0-9][0-9A-Za-z.+_-]{0,39}", "a version")
python_version = matching(r"[0-9]\.[0-9]{1,2}", "a version of Python, such as 3.11")
kernel = matching(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}", "the release of a kernel")
library = matching(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}", "the name of a library or program")
network = matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", "the name of a network")
module = matching(r"[A-Za-z_][A-Za-z0-9_]{0,99}", "the name of a module of Python")
path = matching(r"/[^\x00-\x1f\x7f-\x9f]*", "an absolute path", 4096)
node_path = matching(
    r"~?/[^\x00-\x1f\x7f-\x9f]*", "an absolute path, or a path that begins with ~/", 4096
)
file_name = matching(r"[^\x00]+", "the name of a file", 4096)
digest = matching(r"[0-9a-f]{64}", "a sha256")
process = matching(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", "the name of a process")
# A job id is also a folder name.
JOB_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
job_id = matching(JOB_ID, "the id of a job")
MOST_OF_FIRST = 90  # characters of a job's id within the id of its restart


def is_job_id(text: str) -> bool:
    """Return True if `text` is a valid job id.

    An id has at most 100 letters, digits, '.', '_' and '-', and begins with a letter or a digit.
    """
    return bool(re.fullmatch(JOB_ID, text))


def attempt(job: str) -> Tuple[str, int]:
    """Return (id of the first attempt, number of the restart) of the job id `job`.

    The restarts of "mine" have the ids "mine-r1", "mine-r2" and so on. The number is 0 for the
    first attempt. An id of a restart keeps at most MOST_OF_FIRST characters of the first id.
    """
    match = re.fullmatch(r"(.+)-r([1-9][0-9]{0,3})", job)
    return (match.group(1), int(match.group(2))) if match else (job, 0)


def restart_of(job: str, number: int) -> str:
    """Return the id of the restart `number` of the job whose first attempt has the id `job`."""
    return "%s-r%d" % (job[:MOST_OF_FIRST], number)
