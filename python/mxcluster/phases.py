"""Names of the phases of a job's process.

Each process writes its phase, and the agents and the controller read the phase.
"""

# Phases, in their order.
STARTING = "starting"  # a worker before its kv-store, a server or scheduler before MXNet
CONNECTING = "connecting"  # waits in ps-lite for the other processes
TRAINING = "training"  # a worker that has a kv-store, or has called `beat`
SERVING = "serving"  # a server or scheduler
UPDATING = "updating"  # a server in its optimizer
# A worker after the last line of its script: threads of the script and exit handlers still run. If
# they use the kv-store, the worker is TRAINING again.
ENDING = "ending"
FINISHED = "finished"  # a worker after the end of its script, waiting for the other workers
LEAVING = "leaving"  # the work is done, and the process ends

# On a busy node a process waits for a core. The limit of such a process is up to PATIENCE times
# start_timeout.
PATIENCE = 2
