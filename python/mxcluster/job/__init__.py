"""Controller: a job from its options to its verdict."""
