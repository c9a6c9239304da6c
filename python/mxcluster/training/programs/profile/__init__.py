"""The program that `profile.yml` runs to measure workers, servers and the network."""
