"""Inspect and change one node: addresses, GPUs, processes, firewall, probe, rendezvous."""
