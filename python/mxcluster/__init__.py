"""Run MXNet parameter-server jobs on a cluster of nodes."""

__version__ = "0.1.0"
