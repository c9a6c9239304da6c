"""Controller code for cluster files, the ssh mesh, installed software and verification."""
