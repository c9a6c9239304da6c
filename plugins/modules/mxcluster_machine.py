#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: return the facts about hardware and software that determine a node's packages.

The module only reads, and finds GPUs by PCI class and vendor, with or without a driver.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import glob
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mxcluster_atomic_files import text_of

PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
# VGA and 3D controllers (PCI Code and ID Assignment Specification, class 03h)
DISPLAYS = ("0x0300", "0x0302")


def gpus(bus=PCI):
    """Return the PCI device numbers, such as '1db4', of the NVIDIA GPUs in the order of the bus.

    Args: `bus` the folder of the kernel's PCI devices.
    """
    found = []
    for slot in sorted(os.listdir(bus)) if os.path.isdir(bus) else []:
        vendor, kind, device = (
            text_of(os.path.join(bus, slot, name)).strip() for name in ("vendor", "class", "device")
        )
        if vendor == NVIDIA and kind.startswith(DISPLAYS):
            found.append(device[len("0x") :])
    return found


def loaded_driver(path="/proc/driver/nvidia/version"):
    """Return the version of the loaded NVIDIA driver, such as '470.256.02', else None.

    Args: `path` the file in which the kernel module of the driver gives its version.
    """
    found = re.search(r"Kernel Module[^\n]*?\s(\d+\.\d+(?:\.\d+)?)\s", text_of(path) + " ")
    return found.group(1) if found else None


def kernels(folder="/lib/modules"):
    """Return the releases of the installed kernels, the oldest first.

    Args: `folder` the folder with a subfolder of modules for each kernel. A removed kernel may
    leave its subfolder without the file modules.order.
    """
    found = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(
        (name for name in found if os.path.exists(os.path.join(folder, name, "modules.order"))),
        key=age,
    )


def age(kernel):
    """Return the sort key of a kernel's release.

    The key begins with the numbers before the system's name. So 3.10.0-1160.2.2.el7 is newer than
    3.10.0-1160.el7, although 2 is less than the 7 of el7.
    """
    upstream = re.split(r"[.\-_+](?=[A-Za-z])", kernel)[0]
    return [[int(part) for part in re.findall(r"\d+", text)] for text in (upstream, kernel)]


def secure_boot(folder="/sys/firmware/efi/efivars"):
    """Return True if the fifth byte of the firmware's variable says that secure boot is on.

    Args: `folder` the folder of the firmware's variables, missing on a machine without EFI.
    """
    path = os.path.join(folder, "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
    try:
        with open(path, "rb") as source:
            return bytearray(source.read())[4:5] == bytearray([1])
    except (IOError, OSError):
        return False


def gpu_users(proc="/proc"):
    """Return the programs with an open device /dev/nvidia*, such as "python (pid 4711)".

    The function leaves out the persistence daemon.

    Args: `proc` the folder of the kernel's processes.
    """
    found = []
    for pid in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        name = text_of(os.path.join(proc, pid, "comm")).strip()
        if name and not name.startswith("nvidia-persist"):
            files = glob.glob(os.path.join(proc, pid, "fd", "*"))  # [] for another user's process
            if any(target(path).startswith("/dev/nvidia") for path in files):
                found.append("%s (pid %s)" % (name, pid))
    return found


def target(link):
    """Return the target of the symbolic link at the path `link`, '' if the link has gone."""
    try:
        return os.readlink(link)
    except (IOError, OSError):
        return ""


def output_of(module, argv):
    """Return the output of the command line `argv`, or '' if the program is missing or fails."""
    if not os.path.isabs(argv[0]):
        argv = [module.get_bin_path(argv[0], opt_dirs=["/sbin", "/usr/sbin"]) or ""] + argv[1:]
    if not os.access(argv[0], os.X_OK):
        return ""
    code, out, _ = module.run_command(argv)
    return out.strip() if code == 0 else ""


def loads(module, python, library):
    """Return True if the interpreter `python` can load the shared library `library`.

    An interpreter such as conda's may find the library in its own folder.
    """
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('yes')"
    return output_of(module, [python, "-c", program, library]) == "yes"


def main():
    """Examine the node's hardware and software, and print the result for Ansible."""
    module = AnsibleModule(
        argument_spec=dict(
            python=dict(type="path", default="/usr/bin/python3"),  # for MXNet's environment
            libraries=dict(type="list", elements="str", default=[]),
            programs=dict(type="list", elements="str", default=[]),
        ),
        supports_check_mode=True,
    )
    known = output_of(module, ["ldconfig", "-p"])
    python, program = module.params["python"], "import sys; print('%d.%d' % sys.version_info[:2])"
    version = output_of(module, [python, "-c", program])
    installed, running = kernels(), os.uname()[2]
    module.exit_json(
        changed=False,
        gpus=gpus(),
        driver=loaded_driver(),
        driver_installed=output_of(module, ["modinfo", "-F", "version", "nvidia"]) or None,
        nouveau=os.path.isdir("/sys/module/nouveau"),
        kernel=running,
        kernels=installed,
        modules={
            kernel: output_of(module, ["modinfo", "-k", kernel, "-F", "version", "nvidia"])
            for kernel in set([running] + installed[-1:])
        },
        secure_boot=secure_boot(),
        gpu_users=gpu_users(),
        machine_id=text_of("/etc/machine-id").strip(),
        python=version or None,
        missing_libraries=[
            name
            for name in module.params["libraries"]
            if "\t%s " % name not in "\t%s" % known and not loads(module, python, name)
        ],
        missing_programs=[
            name for name in module.params["programs"] if not module.get_bin_path(name)
        ],
    )


if __name__ == "__main__":
    main()
