"""Run MXNet parameter-server jobs on a set of machines."""

__version__ = "0.1.0"
