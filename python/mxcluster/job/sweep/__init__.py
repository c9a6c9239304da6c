"""Sweeps: benchmark.yml and compare.yml run a list of jobs, one after the other.

Both are one mechanism. A sweep has a specification, `runs/<sweep>/sweep.json`, from which `specs`
computes its jobs; the jobs of a comparison also depend on the results so far (`stages`). `runner`
runs the jobs that have no result, so an interrupted sweep goes on where it stopped. `results` reads
the figures of each job from its run folder, and `report` writes tables and plots.
"""
