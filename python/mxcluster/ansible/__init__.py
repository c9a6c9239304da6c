"""Shared code of the Ansible plugins: tasks that ask nodes, and the variables of all roles."""
