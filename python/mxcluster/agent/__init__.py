"""The agent: on each node, the parent of the node's processes of one job.

- `folder`: the job's folder, where everything about the job on this node lies;
- `lease`: how long a job goes on when nobody asks for it any more;
- `supervisor`: starts the processes, watches them, ends them all when one fails;
- `daemon`: how the supervisor gets away from the terminal;
- `claims`: what the jobs of the node hold, and how a job gets it;
- `jobs`: all jobs of the node;
- `commands`: start, wait, status, stop, collect, logs, plan; `python -m mxcluster.agent` is their door.
"""
