"""Shared code of the Ansible plugins: bases of tasks, contact with nodes, names of knobs."""
