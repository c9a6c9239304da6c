#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: write the ssh files in the training user's home with the rights of that user.

Ansible's own modules cannot replace this module. ansible.builtin.user creates a key as root in a
home where the user can place links, and accepts a key with a passphrase.
ansible.builtin.blockinfile with become_user runs as a process of the training user. Other processes
of that user can forge the result of such a process through /proc/<pid>/fd/1. The child process of
this module is a fork of a root process, so other processes cannot access the child. blockinfile
also requires a login user that may become the training user.

With --diff the module shows the changes of the blocks, but not of the key.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import pwd
import shutil
import stat
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.mxcluster_atomic_files import read, shown, text_of, write
from ansible.module_utils.mxcluster_blocks import without_block
from ansible.module_utils.mxcluster_user import act_as

MOVE_AWAY = (
    "Move this file to another folder and run provision.yml to create another key, or set "
    "ssh_mesh_mode: none."
)
GIVE_ANOTHER = (
    "Set ssh_mesh_shared_key_file or ssh_mesh_shared_key to another key. Or unset both variables "
    "and run provision.yml to create a key."
)


def read_key(module, private):
    """Return (public key as "type base64", error) of the private key file `private`.

    The key is "" and the error a text if ssh-keygen cannot read the file without a passphrase.
    """
    code, out, err = module.run_command(["ssh-keygen", "-y", "-P", "", "-f", private])
    return ("", (err or out).strip()) if code else (without_comment(out), "")


def public_half(module, private, cure, name=None):
    """Return the public key of the private key file `private`. Fail the module for a bad key.

    Args: `cure` the last sentences of the error message; `name` the key's name in this message, by
    default the path.
    """
    key, error = read_key(module, private)
    if not key:
        module.fail_json(
            msg="%s is not usable as an SSH key (%s). The key may have a passphrase, be damaged or "
            "be readable by other users. %s" % (name or private, error, cure)
        )
    return key


def predicted(module, private_key):
    """Return the public key of `private_key` (bytes), or '' for an unusable key.

    The function writes to a temporary folder only, so the module can call it in check mode.
    """
    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, "key")
        write(path, private_key, 0o600)
        return read_key(module, path)[0]
    finally:
        shutil.rmtree(folder)


def without_comment(line):
    """Return the line of a public key without its comment."""
    return " ".join(line.split()[:2])


def rebuilt(content, block, marker, place):
    """Return `content`, the bytes of a file, with `block` once between its marker lines.

    The block replaces the first earlier block with these markers. Without an earlier block, the new
    block goes to `place`, "BOF" or "EOF".

    Args: `block` and `marker` as in the option `blocks`, in bytes.
    """
    begin, end = marker.replace(b"{mark}", b"BEGIN"), marker.replace(b"{mark}", b"END")
    kept, at = without_block(content, marker)
    if at is None:
        at = 0 if place == "BOF" else len(kept)
    before = b"".join(kept[:at])
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return before + b"\n".join([begin, block.rstrip(b"\n"), end, b"".join(kept[at:])])


def private_folder(path, check):
    """Create the folder `path` with mode 0700, or set this mode. Return True on a change.

    With `check` True, the function changes nothing and returns the same result.
    """
    try:
        if stat.S_IMODE(os.stat(path).st_mode) == 0o700:
            return False
        if not check:
            os.chmod(path, 0o700)
    except OSError:
        if os.path.isdir(path):
            raise
        if not check:
            os.mkdir(path, 0o700)
    return True


def write_block(home, block, check):
    """Write `block` into its file, and return (changed, path, old content, new content).

    The contents are bytes, and the old content of a missing file is None.

    Args: `home` of the user; `block` an item of the option `blocks`; `check` True to write nothing.
    """
    path, mode = os.path.join(home, block["path"]), int(block["mode"], 8)
    folder = os.path.dirname(path)
    changed = folder != home and private_folder(folder, check)
    path = os.path.realpath(path)
    old, old_mode = read(path)
    if old is not None:
        mode &= old_mode
    new = rebuilt(old or b"", to_bytes(block["block"]), to_bytes(block["marker"]), block["place"])
    if (old, old_mode) != (new, mode):
        changed = True
        if not check:
            write(path, new, mode)
    return changed, path, old, new


def main():
    """Provide the key pair and the blocks, and print the result for Ansible."""
    module = AnsibleModule(
        argument_spec=dict(
            user=dict(type="str", default=""),  # the owner of the home, empty for the current user
            # Create or install a key pair without a passphrase in ~/.ssh, and return the public
            # key. An existing private key stays, unless `private` is another key.
            key=dict(
                type="dict",
                options=dict(
                    name=dict(type="str", required=True),
                    private=dict(type="str", default="", no_log=True),
                ),
            ),
            # Write a block between two marker lines into each file, in place of the old block. The
            # other lines stay. The module creates missing files, and folders with mode 0700.
            blocks=dict(
                type="list",
                elements="dict",
                options=dict(
                    path=dict(type="str", required=True),  # relative to the home
                    block=dict(type="str", required=True),
                    marker=dict(type="str", required=True),  # {mark} becomes BEGIN and END
                    # Of a new file. An existing file gets no permission beyond this mode.
                    mode=dict(type="str", default="0600"),
                    place=dict(type="str", choices=["BOF", "EOF"], default="EOF"),
                ),
            ),
        ),
        required_one_of=[["key", "blocks"]],
        supports_check_mode=True,
    )
    act_as(module, module.params["user"], lambda: provide(module))


def provide(module):
    """Provide the key pair and the blocks with the rights of this process, and end the module."""
    os.umask(0o077)
    user = module.params["user"]
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
        home, name, there = entry.pw_dir, entry.pw_name, True
    except KeyError:  # check mode: an earlier task would have created the user
        home, name, there = "/home/" + user, user, False
    result = dict(changed=False, user=name, home=home)
    if module.params["key"]:
        provide_key(module, there, result)
    if module.params["blocks"] is not None:
        rebuild(module, result)
    module.exit_json(**result)


def provide_key(module, there, result):
    """Create or install the key pair, and set "changed" and "public_key" in `result`.

    Args: `there` True if the user exists; without the user the function writes nothing.
    """
    key = to_bytes(module.params["key"]["private"])
    folder = os.path.join(result["home"], ".ssh")
    private = os.path.join(folder, module.params["key"]["name"])
    try:
        if not there or ((read(private) != (key, 0o600)) if key else not os.path.exists(private)):
            result["changed"] = True
            if module.check_mode:
                result["public_key"] = predicted(module, key) if key else ""
                return
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
            if key:
                put(module, private, key)
            else:
                make(module, private, "%s@%s" % (result["user"], os.uname()[1]))
        result["public_key"] = public_half(module, private, GIVE_ANOTHER if key else MOVE_AWAY)
        if without_comment(text_of(private + ".pub")) != result["public_key"]:
            result["changed"] = True
            if not module.check_mode:
                write(private + ".pub", to_bytes(result["public_key"] + "\n"), 0o600)
    except (IOError, OSError) as error:
        module.fail_json(
            msg="mxcluster cannot write the SSH key of %s (%s: %s). Free disk space, or correct "
            "the owner or the rights of the user's folder .ssh. Then run provision.yml again."
            % (result["user"], error.filename or private, error.strerror or error)
        )


def rebuild(module, result):
    """Write the block of each file, and set "changed" and "diff" in `result`."""
    diff = []
    for block in module.params["blocks"]:
        try:
            touched, path, old, new = write_block(result["home"], block, module.check_mode)
        except (IOError, OSError) as error:
            module.fail_json(
                msg="%s cannot be written by %s: %s (%s). The file is unchanged. Free disk "
                "space, or correct the owner or the rights of the file and the folder. Then run "
                "provision.yml again."
                % (
                    os.path.join(result["home"], block["path"]),
                    result["user"],
                    error.strerror or error,
                    error.filename,
                )
            )
        result["changed"] = result["changed"] or touched
        if old != new:
            diff.append(
                dict(before_header=path, after_header=path, before=shown(old), after=shown(new))
            )
    if module._diff:  # a .bashrc is private: show it with --diff only
        result["diff"] = diff


def put(module, private, key):
    """Write the private key `key` (bytes) to the file `private`.

    If `key` is unusable, the function fails the module and keeps the existing key.
    """
    draft = private + ".part"
    try:
        write(draft, key, 0o600)
        public_half(module, draft, GIVE_ANOTHER, "The configured key for " + private)
        os.rename(draft, private)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def make(module, private, comment):
    """Create a key pair, with the private key in the file `private`.

    ssh-keygen writes the pair under a temporary name. The function renames the complete pair.
    """
    draft = private + ".part"
    for leftover in (draft, draft + ".pub"):
        if os.path.exists(leftover):
            os.unlink(leftover)
    code, out, err = module.run_command(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", draft]
    )
    if code != 0:
        module.fail_json(
            msg="ssh-keygen could not create the key %s, and ended with status %d (%s). Free "
            "disk space, or correct the owner or the rights of the folder. Then run provision.yml "
            "again." % (private, code, (err or out).strip())
        )
    os.rename(draft + ".pub", private + ".pub")
    os.rename(draft, private)


if __name__ == "__main__":
    main()
