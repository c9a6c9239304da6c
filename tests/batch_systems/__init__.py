"""Stand-ins for the programs of batch systems."""

import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent
PROGRAMS = {"slurm": ("sinfo", "sbatch", "scontrol", "squeue", "scancel", "srun")}


def install(name, folder, state):
    """Write the programs of the stand-in `name` into `folder`; their state is in `state`."""
    folder.mkdir(parents=True, exist_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS[name]:
        path = folder / program
        path.write_text(
            '#!/bin/sh\nFAKE_SLURM=%s exec %s -I %s %s "$@"\n'
            % (state, sys.executable, FOLDER / (name + ".py"), program)
        )
        path.chmod(0o755)
