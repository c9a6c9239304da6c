"""Shared code of the Ansible plugins: base classes of tasks, contact with nodes, names of knobs."""
