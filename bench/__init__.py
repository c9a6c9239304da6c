"""Measure the figures of the README: ``python -m bench [name ...]`` runs the benchmarks.

A benchmark prints seconds, or the ratio of the times of two programs that run in turns on one
machine.
"""
