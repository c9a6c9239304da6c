"""The agent: the parent of the processes that one job has on one node.

- `folder`: the job folder, which holds all files of the job on this node;
- `lease`: decides when a job without a controller ends;
- `supervisor`: starts and watches the processes, and ends all of them after a failure;
- `stuck_processes`, `out_of_memory`, `kept_files`: detect or repair faults for the supervisor;
- `daemon`: becomes the agent, or starts a process that does so;
- `shared_folder`: what a node of a batch job reads from the folder that all nodes share;
- `engine`, `engine_file`: start the agents of all nodes through an engine, such as mpirun;
- `claims`: finds the ports and GPUs that the node's jobs hold, and refuses conflicting jobs;
- `jobs`: lists the jobs of the node;
- `leftovers`: lists leftover processes and ports of an ended job;
- `checkpoint_transfer`, `script_files`: find checkpoints and files of scripts for the controller;
- `commands`: the commands prepare, start, wait, status, stop, collect, logs and plan of the
  controller, and the result of `run`.

`python -m mxcluster.agent` runs the programs that live as long as a job.
"""
