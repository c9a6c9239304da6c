import sys

from mxcluster.training.programs import main

sys.exit(main("profile", sys.argv[1:]))
