"""Find environment variables that a script sets too late.

A worker loads MXNet before it runs the script, because a file in the script's folder could replace
a module that MXNet needs. The libraries in MXNet read some variables only when they are loaded.
"""

import json
import re
from typing import Mapping, Optional

# Variables of OpenMP and of the mathematical libraries, and MXNet's numbers of threads. MXNet 1.2
# reads some of these numbers later. All MXNets read other variables with the first operator or
# kv-store. An import of scikit-learn sets two variables of KMP_, which change no number of threads.
_READ_AT_LOAD = re.compile(
    r"(OMP|GOMP|MKL|OPENBLAS)_"
    r"|KMP_(?!DUPLICATE_LIB_OK$|INIT_AT_FORK$)"
    r"|MXNET_(OMP_MAX_THREADS|CPU_WORKER_NTHREADS|MP_WORKER_NTHREADS|MP_OPENCV_NUM_THREADS)$"
)


def warning(before: Mapping[str, str], now: Mapping[str, str]) -> Optional[str]:
    """Return a warning about variables that the script has set too late, None without any.

    Args: `before` and `now` the environment before the script, and now.
    """
    late = {
        name: value
        for name, value in sorted(now.items())
        if _READ_AT_LOAD.match(name) and before.get(name) != value
    }
    if not late:
        return None
    return (
        "the script sets %s, but MXNet was loaded before the script and may not see this: give the "
        "variables to the job with -e '%s'"
        % (
            ", ".join("%s=%s" % pair for pair in late.items()),
            json.dumps({"env_worker": late}),
        )
    )
