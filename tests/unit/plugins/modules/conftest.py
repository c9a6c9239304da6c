"""Put our module_utils beside Ansible's, where Ansible puts them for modules."""

import ansible.module_utils

from tests.ansible_modules import PROJECT

ansible.module_utils.__path__.append(str(PROJECT / "plugins" / "module_utils"))
