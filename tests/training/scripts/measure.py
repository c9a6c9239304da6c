import sys

from mxcluster.training.programs.profile import main

sys.exit(main(sys.argv[1:]))
