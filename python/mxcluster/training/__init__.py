"""The code that runs inside the processes of a job: scheduler, servers and workers."""
