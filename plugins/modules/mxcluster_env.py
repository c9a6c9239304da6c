#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: build a Python environment from pinned wheels, and check that it imports MXNet.

The module makes a virtual environment with the node's own Python, installs exactly the wheels of
the build for that version, and imports MXNet once. The wheels come in one tar file that includes
pip, so a node needs no package index and no ensurepip. The module refuses a tar file with any other
file, and compares the sha256 of each file before it runs pip.

The module writes a marker with a digest of all options last, and rebuilds an environment with
another marker. So no job uses an interrupted installation. Nodes that share the folder build the
environment once: the first node holds a lock, and the others wait for it. The module writes only
`path`, `path` with the suffixes .lock and .build, and what `site_path` describes.

With `is_layer` the module installs the wheels into the folder `path`, without an environment. A
Python with this folder in sys.path imports them beside its own packages.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.mxcluster_atomic_files import make_folder, remove, text_of, write
from ansible.module_utils.mxcluster_wheels import (
    Refused,
    choose_build,
    contents,
    cure_for,
    is_compiled,
    requirement,
    sync,
    unpack,
)

MARKER = "mxcluster-env.json"
PTH = "mxcluster-package.pth"
COMPILED = "mxcluster-compiled.json"
LOOK = (
    "import json, sys; "
    "print(json.dumps(['%d.%d' % sys.version_info[:2], getattr(sys, 'base_prefix', sys.prefix)]))"
)
# MXNet imports beside a newer numpy only with the package mxcluster.
PROVE = "import mxnet; print(mxnet.__version__)"
PROVE_WITH_PACKAGE = (
    "from mxcluster.node import mxnet_compat; print(mxnet_compat.import_mxnet().__version__)"
)
# Python can import from a zip file, such as a wheel. So pip runs from its own wheel. Under Python
# 3.7 to 3.9 this name of sysconfig keeps pip from importing distutils, which Debian packs apart.
# Outside an environment, Debian's distutils knows the folder of the packages.
RUN_PIP = """import runpy, sys, sysconfig
if sys.prefix != sys.base_prefix:
    sysconfig._PIP_USE_SYSCONFIG = True
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
# User settings that would add other packages or change the folder of the installation.
HARMFUL = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_CONSTRAINT",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_NO_BINARY",
)


def marker_of(path):
    """Return {"digest", "wheels"}, the marker of the environment `path`, or {} if it is invalid."""
    try:
        return json.loads(text_of(os.path.join(path, MARKER)))
    except ValueError:
        return {}


class Environment(object):
    """The requested Python environment, with the steps to build it."""

    def __init__(self, module):
        self.module = module
        self.path = os.path.abspath(module.params["path"])
        self.is_layer = module.params["is_layer"]
        self.python = os.path.join(self.path, "bin", "python")
        if self.is_layer:
            self.python = module.params["python"]
        self.zip = module.params["site_path"]
        self.inherited = ()
        version, self.base = self.look(module.params["python"])
        build = choose_build(
            module.params["builds"], version, module.params["name"], module.params["note"]
        )
        self.wheels, self.pip = build["wheels"], build["pip"]
        hashes = module.params["hashes"]
        self.version = version
        self.requirements = [requirement(wheel, hashes) for wheel in self.wheels + [self.pip]]
        self.accepted = {
            digest: wheel for wheel in self.wheels + [self.pip] for digest in hashes[wheel]
        }
        parts = [version, self.base, self.requirements] + ["system"] * module.params["system"]
        self.digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()
        self.pth = os.path.join(self.path, "lib", "python" + version, "site-packages", PTH)
        self.site_path = "%s-%s" % (os.path.splitext(self.zip)[0], version) if self.zip else ""
        added = [self.site_path] * bool(self.site_path) + (module.params["layers"] or [])
        self.pth_lines = "".join(path + "\n" for path in added)  # extend sys.path

    def look(self, python):
        """Return [version, folder of the installation] of an interpreter, such as ['3.11', '/usr'].

        For a virtual environment, the result describes the Python that created the environment.
        Raises Refused if `python` is not executable.
        """
        if not os.access(python, os.X_OK):
            raise Refused(
                "this node has no Python at %s: install Python there, or set mxnet_python to the "
                "path of an interpreter" % python
            )
        return json.loads(self.run("read the version of Python", [python, "-c", LOOK]))

    def is_built(self):
        """Return True if the environment exists and matches the options."""
        return marker_of(self.path).get("digest") == self.digest and os.access(self.python, os.X_OK)

    def is_done(self):
        """Return True if the environment, the .pth file and the package folder fit the options."""
        return (
            self.is_built()
            and text_of(self.pth) == self.pth_lines
            and (
                not self.site_path
                or self.is_unpacked()
                and not any(map(os.path.lexists, self.leftovers()))
            )
        )

    def leftovers(self):
        """Return the paths of the two temporary package folders that a killed module may leave."""
        return [self.site_path + ".draft", self.site_path + ".old"]

    def is_unpacked(self):
        """Return True if the package folder holds exactly the zip file's content and bytecode."""
        try:
            with contextlib.closing(zipfile.ZipFile(self.zip)) as archive:
                complete = {
                    member.filename: [member.file_size, member.CRC]
                    for member in archive.infolist()
                    if not member.filename.endswith("/")
                }
            found = {} if os.path.islink(self.site_path) else contents(self.site_path)
            with open(os.path.join(self.site_path, COMPILED)) as source:
                complete.update(json.load(source))
        except (IOError, OSError, TypeError, ValueError, zipfile.BadZipfile):
            return False
        found.pop(COMPILED, None)
        # Python may have added bytecode of other optimization levels.
        return complete == {
            path: found[path] for path in found if path in complete or not is_compiled(path)
        }

    def bring_about(self):
        """Build the environment and unpack the package if needed. Return True on a change."""
        if self.site_path and not os.path.exists(self.zip):
            raise Refused(
                "%s, the zip file of the package mxcluster, is missing on this node: run "
                "provision.yml, which copies the file" % self.zip
            )
        make_folder(os.path.dirname(self.path))
        with self.locked(self.path):
            if self.is_done():
                return False
            if self.is_built():
                self.add_package()
            else:
                self.build()
            return True

    @contextlib.contextmanager
    def locked(self, path):
        """Hold the lock file of `path` while the block runs.

        Other runs of the module for the same `path` wait for the lock. If nodes share the folder
        over a network file system, runs on other nodes wait, too.
        """
        # Only the owner can open the file and hold the lock.
        with os.fdopen(os.open(path + ".lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
            if stat.S_IMODE(os.fstat(lock.fileno()).st_mode) != 0o600:
                os.fchmod(lock.fileno(), 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.inherited
            # Programs of this module inherit the lock, and keep it if the module is killed.
            self.inherited += (lock.fileno(),)
            try:
                yield
            finally:
                self.inherited = before

    def build(self):
        """Build the environment anew from the wheels in the option `archive`.

        The method writes the environment's marker last. After an error the method removes the
        partial environment.
        """
        temporary = self.path + ".build"
        for leftover in (self.path, temporary):
            if os.path.lexists(leftover):
                shutil.rmtree(leftover)
        os.mkdir(temporary, 0o700)  # root runs programs from this folder
        try:
            pip = unpack(self.module.params["archive"], temporary, self.accepted)[self.pip]
            if self.is_layer:
                os.mkdir(self.path)
                self.install(pip, temporary, ["--target", self.path])
            else:
                self.make_environment(pip, temporary)
            write(
                os.path.join(self.path, MARKER),
                to_bytes(json.dumps({"digest": self.digest, "wheels": self.wheels})),
                0o644,
            )
        except BaseException as error:
            # Free the disk, because a full disk would make the next run fail.
            shutil.rmtree(self.path, ignore_errors=True)
            if not isinstance(error, (tarfile.TarError, ValueError)):
                raise
            raise Refused(
                "%s is not a tar file of wheels (%s): run the playbook again, which copies the "
                "tar file again" % (self.module.params["archive"], error)
            )
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def make_environment(self, pip, temporary):
        """Make a virtual environment with the wheels in the folder `temporary`, and prove MXNet.

        Args: `pip` the path of pip's wheel.
        """
        system = self.module.params["system"]
        argv = [self.module.params["python"], "-m", "venv", "--without-pip"]
        argv += ["--system-site-packages"] * system + [self.path]
        self.run("make the environment", argv, temporary)
        self.install(pip, temporary, self.in_the_system(self.pip) * system)
        self.add_package()
        self.prove(temporary)

    def install(self, pip, temporary, options):
        """Install the wheels in the folder `temporary`.

        Args: `pip` the path of pip's wheel; `options` more options of pip.
        """
        if not self.wheels:
            return
        system = self.module.params["system"]
        listed = os.path.join(temporary, "requirements.txt")
        write(listed, to_bytes("\n".join(self.requirements) + "\n"), 0o644)
        program = os.path.join(temporary, "install.py")
        write(program, to_bytes(RUN_PIP), 0o644)
        argv = [self.module.params["python"] if system else self.python, program, pip]
        argv += ["--isolated", "install", "--quiet", "--disable-pip-version-check"]
        argv += ["--no-cache-dir", "--no-deps", "--no-index", "--find-links", temporary]
        argv += ["--only-binary", ":all:", "--require-hashes", "-r", listed]
        self.run("install the wheels", argv + options, temporary)

    def add_package(self):
        """Let the environment import the package folder and the layers.

        The method makes the package folder if needed.
        """
        if self.site_path:
            self.unpack_package()
        if self.pth_lines:
            write(self.pth, to_bytes(self.pth_lines), 0o644)
        elif os.path.exists(self.pth):
            os.unlink(self.pth)

    def unpack_package(self):
        """Make the package folder from the zip file, unless the folder is complete."""
        # Other environments of this Python version may share the package.
        with self.locked(self.site_path):
            draft, old = self.leftovers()
            remove(draft)
            remove(old)
            if self.is_unpacked():
                return
            try:
                self.make_package(draft)
            except BaseException as error:
                shutil.rmtree(draft, ignore_errors=True)
                if not isinstance(error, (zipfile.BadZipfile, zlib.error, EOFError)):
                    raise
                raise Refused(
                    "%s is not a complete zip file (%s): remove the file on this node, and run "
                    "provision.yml again" % (self.zip, error)
                )
            # A running program that has imported from the old folder gets later imports from the
            # same path.
            if os.path.lexists(self.site_path):
                os.rename(self.site_path, old)
            os.rename(draft, self.site_path)
            sync(os.path.dirname(self.site_path))
            remove(old)

    def make_package(self, draft):
        """Unpack and compile the package into the new folder `draft`, and sync all its files."""
        os.mkdir(draft, 0o700)
        with contextlib.closing(zipfile.ZipFile(self.zip)) as archive:
            archive.extractall(draft)
        self.run(
            "compile mxcluster",
            [self.python, "-m", "compileall", "-q", "-d", self.site_path, draft],
        )
        found = contents(draft)
        compiled = {path: found[path] for path in found if is_compiled(path)}
        listed = to_bytes(json.dumps(compiled, sort_keys=True))
        write(os.path.join(draft, COMPILED), listed, 0o644)
        os.chmod(draft, 0o755)
        # Without the sync, a power cut could leave empty files behind the new name.
        for parent, _, files in os.walk(draft):
            for path in [parent] + [os.path.join(parent, name) for name in files]:
                sync(path)

    @staticmethod
    def in_the_system(pip):
        """Return pip's options (list) for an installation into the system's Python.

        The options keep the packages that RPMs have installed, and permit changes of Debian's
        system environment.

        Args: `pip` the wheel of pip, such as "pip==25.0.1".
        """
        knows = int(pip.split("==")[1].split(".")[0]) >= 23
        newer = ["--break-system-packages", "--root-user-action=ignore"]
        return ["--ignore-installed"] + newer * knows

    def prove(self, temporary):
        """Import MXNet in the environment, and compare its version with the wheel's version.

        With this import, a missing system library fails the module instead of the first job.

        Args: `temporary` the folder for temporary files. Raises Refused if the import fails or the
        versions differ.
        """
        # Without the suffix: 1.2.1 for PyPI's wheel 1.2.1.post1, 1.9.1 for an own build 1.9.1+mine.
        expected = re.match(r"\d+(\.\d+)*", self.wheels[0].split("==")[1]).group()
        program = PROVE_WITH_PACKAGE if self.site_path else PROVE
        version = self.run("import MXNet", [self.python, "-c", program], temporary).split()[-1]
        if not re.match(re.escape(expected) + r"(?![.\d])", version):
            raise Refused(
                "the wheel %s contains MXNet %s: correct this wheel's version in "
                "python/mxcluster/cluster/mxnet.yml" % (self.wheels[0], version)
            )

    def run(self, purpose, argv, temporary=None):
        """Run a program and return its output.

        Raises Refused with the last lines of the output if the program fails.

        Args: `purpose` of the program, as words after "could not"; `argv` the command line;
        `temporary` the folder for temporary files.
        """
        # pip must ignore the settings of the node and of its users.
        settings = dict(PYTHONNOUSERSITE="1", PIP_CONFIG_FILE=os.devnull, OMP_NUM_THREADS="1")
        if temporary:
            settings["TMPDIR"] = temporary
        code, out, err = self.module.run_command(
            argv,
            environ_update=settings,
            cwd=temporary or "/",
            pass_fds=self.inherited,
            expand_user_and_vars=False,
        )
        if code != 0:
            last = "\n".join((err.strip() or out.strip()).splitlines()[-8:]) or "(nothing)"
            name, program = self.module.params["name"], " ".join(argv[:2])
            raise Refused(
                "%s: could not %s, because `%s` ended with status %d.%s The last lines of the "
                "output:\n%s" % (name, purpose, program, code, cure_for(last), last)
            )
        return out


ARGUMENTS = dict(
    path=dict(type="path", required=True),  # a build removes the folder's content first
    python=dict(type="path", required=True),  # the interpreter on the node
    # The module installs the set for the version of `python`.
    builds=dict(
        type="list",
        elements="dict",
        required=True,
        options=dict(
            python=dict(type="list", elements="str", required=True),
            # All packages as name==version, MXNet first, and the wheel of pip.
            wheels=dict(type="list", elements="str", required=True),
            pip=dict(type="str", required=True),
        ),
    ),
    hashes=dict(type="dict", required=True),  # {name==version: [sha256 of a valid file]}
    name=dict(type="str", default="MXNet"),  # for messages
    note=dict(type="str", default=""),  # the reason that other Pythons have no build
    # A zip file with a package for the environment. The module unpacks and compiles the
    # package into a folder beside the file, with the Python version as suffix. From a zip
    # file, Python would compile the modules at every start. A folder with other content is
    # replaced, and is missing for an instant; a running program gets later imports from the
    # new folder. Environments may share the folder. The module also writes the folder's
    # path with the suffixes .lock, .draft and .old, of which only .lock stays. Other
    # folders and zip files stay, because jobs may still import from them.
    site_path=dict(type="path"),
    archive=dict(type="path"),  # the tar file with the wheels
    is_layer=dict(type="bool", default=False),  # install into the folder `path` itself
    # Layers that the environment imports after its own packages. A missing folder is ignored.
    layers=dict(type="list", elements="path", default=[]),
    # Install into the administrator's folder of `python` (/usr/local), for all its users.
    # The environment then uses these packages.
    system=dict(type="bool", default=False),
    ask=dict(type="bool", default=False),  # return the facts, and change nothing
)


def main():
    """Build the environment, or return its missing wheels, and print the result for Ansible."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
    )
    for name in HARMFUL:
        os.environ.pop(name, None)
    os.umask(0o022)  # the training user must be able to read the environment
    try:
        environment = Environment(module)
        before = marker_of(environment.path).get("wheels", [])
        changed = not environment.is_done()
        if changed and not module.params["ask"] and not module.check_mode:
            changed = environment.bring_about()
    except Refused as refusal:
        module.fail_json(msg=str(refusal))
    except (IOError, OSError) as error:
        module.fail_json(
            msg="mxcluster cannot build the environment (%s: %s). Free disk space, or correct the "
            "owner or the rights of this path. Then run the playbook again, which repeats "
            "unfinished steps" % (error.filename or module.params["path"], error.strerror or error)
        )
    result = dict(
        changed=changed,
        python=environment.version,
        built=environment.is_built(),
        done=environment.is_done(),
    )
    if before != environment.wheels:
        result["diff"] = dict(
            before="\n".join(before + [""]), after="\n".join(environment.wheels + [""])
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
