"""The code inside the processes of a job: scheduler, servers and workers."""
