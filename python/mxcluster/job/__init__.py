"""Controller code of a job: options, plan, live line, verdict, restart and report."""
