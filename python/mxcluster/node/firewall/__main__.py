"""`python -m mxcluster.firewall`, see `mxcluster.firewall`."""
import sys

from mxcluster.firewall import main

sys.exit(main(sys.argv[1:]))
