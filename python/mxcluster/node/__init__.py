"""Inspect and change one machine: addresses, GPUs, processes, firewall, probe, rendezvous."""
