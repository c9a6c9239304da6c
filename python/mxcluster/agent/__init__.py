"""The agent: on each node, the parent process of the node's processes of one job.

- `folder`: the job folder with all files of the job on this node;
- `lease`: how long a job runs without a controller;
- `supervisor`: starts the processes, watches them, ends them all when one fails;
- `stuck_processes`, `out_of_memory`, `kept_files`: faults that the supervisor detects or repairs;
- `daemon`: detaches the supervisor from the terminal;
- `engine`, `engine_file`: start the agents of all nodes by an engine of the site, such as mpirun;
- `claims`: finds the ports and GPUs that the jobs of the node hold, and claims free ones;
- `jobs`: all jobs of the node;
- `leftovers`: lists processes and ports that a job leaves behind after its end;
- `checkpoint_transfer`, `script_files`: files for the controller;
- `commands`: prepare, start, run, wait, status, stop, collect, logs and plan;
  `python -m mxcluster.agent` runs them.
"""
