"""Name the types of Ansible's values. Ansible has no types, so each name stands for Any."""

from typing import Any

AggregateStats = Any  # ansible.executor.stats.AggregateStats
ArgumentSpec = Any  # of ansible.module_utils.common.arg_spec, {name: its spec}
Callback = Any  # a plugin of the type callback
CliArguments = Any  # ansible.context.CLIARGS
Facts = Any  # the variable ansible_facts, {name: value}
HostVars = Any  # ansible.vars.hostvars.HostVars
TaskArguments = Any  # the arguments of a task or a module, {name: value}
TaskResult = Any  # the result of a task, {name: value}
TaskVars = Any  # the variables of a task, {name: value}
