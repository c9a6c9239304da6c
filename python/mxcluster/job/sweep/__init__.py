"""Run a sweep: a list of jobs of benchmark.yml or compare.yml, one after the other.

The file `runs/<sweep>/sweep.json` holds the specification of a sweep, from which `specs` computes
the jobs. The jobs of a comparison (compare.yml) also depend on earlier results, see `stages`.
`runner` runs the jobs without a result, so an interrupted sweep continues at the next job.
`results` reads the figures of a job from the run folder, and `report` writes tables and plots.
"""
