"""The part of rpmUtils of yum 3 that Ansible's module yum calls."""
