"""Measure the figures of the README: ``python -m bench [name ...]`` runs the benchmarks.

A benchmark prints seconds, or ratios of two programs that take turns on one machine.
"""
