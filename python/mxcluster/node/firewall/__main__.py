"""Run `python -m mxcluster.node.firewall` (see `mxcluster.node.firewall`)."""

import sys

from mxcluster.node.firewall import main

sys.exit(main(sys.argv[1:]))
