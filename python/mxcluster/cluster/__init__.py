"""A cluster before any job: its files, its ssh mesh, its software, its verification."""
