"""Training programs that come with mxcluster, one package each, with `main(argv) -> exit status`."""
