"""The agent: the parent of the processes that one job has on one node.

- `folder`: the job folder with all files of the job on this node;
- `lease`: how long a job runs without a controller;
- `supervisor`: starts the processes, watches them, ends them all when one fails;
- `stuck_processes`, `out_of_memory`, `kept_files`: faults that the supervisor detects or repairs;
- `daemon`: detaches the supervisor from the terminal;
- `claims`: finds the ports and GPUs that the node's jobs hold, and refuses a job that needs one;
- `jobs`: lists the jobs of the node;
- `leftovers`: lists processes and ports that a job leaves behind after its end;
- `checkpoint_transfer`, `script_files`: checkpoints and files of scripts, for the controller;
- `commands`: prepare, start, run, wait, status, stop, collect, logs and plan, as functions.

`python -m mxcluster.agent` runs the commands.
"""
