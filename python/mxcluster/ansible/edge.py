"""Name the types of Ansible's values. Ansible has no types, so each name stands for Any."""

from typing import Any

CliArguments = Any  # ansible.context.CLIARGS
HostVars = Any  # ansible.vars.hostvars.HostVars
TaskResult = Any  # the result of a task, {name: value}
TaskVars = Any  # the variables of a task, {name: value}
