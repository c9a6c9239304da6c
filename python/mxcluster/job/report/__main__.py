"""Make the report of a run again: python -m mxcluster.job.report RUN_DIR."""

import argparse
import sys
from typing import List, Optional

from mxcluster.errors import MxclusterError
from mxcluster.job import report


def main(argv: Optional[List[str]] = None) -> int:
    """Write the report of the run folder in `argv`.

    Return the exit code (int): 0, or 1 if the folder holds no run.
    """
    parser = argparse.ArgumentParser(
        prog="python -m mxcluster.job.report",
        description="Make report.html and curves.png of a run again.",
    )
    parser.add_argument("run_dir", help="the folder of a run, e.g. runs/20261121-101500-dist_gsync")
    try:
        print("\n".join(report.write(parser.parse_args(argv).run_dir)))
    except MxclusterError as error:
        print("error: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
