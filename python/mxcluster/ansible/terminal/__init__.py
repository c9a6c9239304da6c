"""Show a run of a playbook on the user's terminal, and keep Ansible's own output in a file.

- `lines` makes the lines, without I/O.
- `screen` writes lines, and rewrites one live line in place.
- `log` keeps Ansible's output.
- `view` follows the tasks of a playbook, for the callback `mxcluster`.
"""
