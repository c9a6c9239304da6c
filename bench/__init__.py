"""The benchmarks behind the figures of the README: ``python -m bench [name ...]``.

They print ratios of two programs measured side by side.
"""
