"""Run `mxcluster.node.firewall.main` as a program: `python -m mxcluster.node.firewall`."""

import sys

from mxcluster.node.firewall import main

sys.exit(main(sys.argv[1:]))
