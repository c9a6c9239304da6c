"""The agent: on each node, the parent process of the node's processes of one job.

- `folder`: the job folder with all files of the job on this node;
- `lease`: how long a job runs without a controller;
- `supervisor`: starts the processes, watches them, ends them all when one fails;
- `daemon`: detaches the supervisor from the terminal;
- `claims`: ports and GPUs that the jobs of the node hold, and how a new job gets its own;
- `jobs`: all jobs of the node;
- `commands`: start, wait, status, stop, collect, logs, plan; `python -m mxcluster.agent` runs them.
"""
