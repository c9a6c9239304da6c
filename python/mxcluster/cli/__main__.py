"""Run `python -m mxcluster.cli` as the command `mxcluster`."""

import sys

from mxcluster.cli import main

sys.exit(main())
