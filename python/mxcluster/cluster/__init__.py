"""Controller code of a cluster without a job: files, ssh mesh, software, verification."""
