"""The benchmarks behind the figures of the README: ``python -m bench [name ...]``.  They print ratios, measured side by side."""
