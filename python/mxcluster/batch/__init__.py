"""Run a job inside a batch system: the head, on the first node of the job."""
