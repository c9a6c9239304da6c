"""Training programs of mxcluster: one package each, with `main(argv) -> exit status`."""
