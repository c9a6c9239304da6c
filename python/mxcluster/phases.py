"""Phases of a job's process. The process writes its phase, and agents and controller read it."""

# Phases, in their order.
STARTING = "starting"  # before its kv-store is made, or MXNet is imported
MEETING = "meeting"  # waits in ps-lite for the other processes
TRAINING = "training"  # a worker that has a kv-store, or has called `beat`
SERVING = "serving"  # a server or scheduler
UPDATING = "updating"  # a server in its optimizer
FINISHED = "finished"  # a worker after the end of its script, waiting for the other workers
LEAVING = "leaving"  # the work is done; threads of the script and exit handlers still run

# Limit on a busy machine, as a multiple of start_timeout: a process without a core is not late.
PATIENCE = 2
