"""Run a job inside a batch system: `head` on the first node, `node_part` on each node."""
