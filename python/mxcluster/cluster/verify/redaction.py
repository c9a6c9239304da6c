"""Remove from a text all words that could tell something about a site.

A list of secrets is never complete, so the rule is the other way round. A word stays if it is a
number, a version, the name of a library, or a word of mxcluster's own public sources or of the
messages of the system. All other words are hidden: names, addresses, paths, keys and passwords that
a program has put into its error message.
"""

import builtins
import functools
import os
import re
from typing import FrozenSet, Mapping

import mxcluster

HIDDEN = "[hidden]"
# Words of messages of ssh and of the dynamic linker, which the sources may lack.
FOREIGN = """
    cannot open shared Errno object file undefined symbol lookup error required by version
    not found relocation Traceback most recent call last line in
    ssh connect to host port Permission denied publickey password keyboard-interactive
    Connection closed refused reset timed out Host key verification failed
    Check failed vs Invalid id usage requires at least valid device should be less than
    Could not resolve hostname Name or service not known No route to host
"""
_FORMS = re.compile(
    r"[+-]?\d{1,6}([.,]\d{1,6})?%?"  # a number
    r"|\d{1,4}(\.\d{1,4}){1,2}"  # a version; an address has four parts
    r"|\d{1,3}:\d\d"  # a duration
    r"|lib[a-z]{2,16}\.so(\.\d{1,3}){0,3}"  # a library
    r"|(GLIBC|GLIBCXX|CXXABI)_\d{1,2}(\.\d{1,3}){1,2}"  # a version of a symbol
    r"|cuda-\d{1,2}\.\d"  # the folder of CUDA
)
_WORD = r"[A-Za-z_][\w.+-]*\w|[A-Za-z]"
SYSTEM_FOLDERS = ("/dev/", "/lib/", "/lib64/", "/proc/", "/sys/", "/usr/")
_EDGES = re.compile(r"([-(\[{<'\"`|]*)(.*?)([)\]}>'\"`|,;:.!?]*)", re.DOTALL)
_INNER = re.compile(r"[=,;]")  # a colon also separates the parts of an address


@functools.lru_cache(maxsize=1)
def vocabulary() -> FrozenSet[str]:
    """Return the words, in small letters, of mxcluster's sources and of the system's messages."""
    texts = [FOREIGN, " ".join(dir(builtins)), *map(os.strerror, range(1, 134))]
    for folder, _, files in os.walk(os.path.dirname(mxcluster.__file__)):
        for name in files:
            if name.endswith((".py", ".yml")):
                with open(os.path.join(folder, name), encoding="utf-8") as stream:
                    texts.append(stream.read())
    found = re.findall(_WORD, "\n".join(texts))
    return frozenset(word.lower() for word in found)


class Redactor:
    """Gives the nodes of a cluster other names, and hides all unknown words of a text."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        """Args: `hosts` {host of the inventory: its name in the report}."""
        self._names = dict(hosts)
        self._kept = frozenset(hosts.values())
        longest = sorted(hosts, key=len, reverse=True)
        self._host = re.compile(
            r"(?<![\w.@/-])(%s)(?![\w@/-]|\.\w)" % "|".join(map(re.escape, longest))
        )

    def text(self, text: str) -> str:
        """Return `text` in one line, with other names for the nodes and without unknown words."""
        renamed = self._host.sub(lambda found: self._names[found.group(1)], text)
        known = " ".join(map(self._chunk, renamed.split()))
        return re.sub(r"%s( %s)+" % ((re.escape(HIDDEN),) * 2), HIDDEN, known)

    def _chunk(self, chunk: str) -> str:
        """Return a word with its punctuation, or HIDDEN in place of the word."""
        found = _EDGES.fullmatch(chunk)
        assert found  # the pattern matches every text
        before, core, after = found.groups()
        is_known = all(map(self._is_known, _INNER.split(core)))
        return chunk if is_known else before + HIDDEN + after

    def _is_known(self, word: str) -> bool:
        """Return True if a word without its punctuation tells nothing about the site."""
        if not word or word in self._kept or _FORMS.fullmatch(word):
            return True
        if word.startswith(SYSTEM_FOLDERS):
            return all(map(self._is_known, word.split("/")))
        plain = word[:-2] if word.endswith("'s") else word
        return plain.lower() in vocabulary()
