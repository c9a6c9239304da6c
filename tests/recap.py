"""Read the recap that Ansible shows at the end of provision.yml."""

import re
from typing import Dict


def changes(output: str) -> Dict[str, int]:
    """Return {host: number of changes} of the recap in `output`, and fail without a recap."""
    found = re.findall(r"^(\S+)\s*: ok=\d+\s+changed=(\d+)\s", output, re.MULTILINE)
    assert found, "no recap\n" + output
    return {host: int(number) for host, number in found}
