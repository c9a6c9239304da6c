"""Settings of all tests."""

import hypothesis

# A run tries the same examples as the one before, and the speed of the machine decides nothing.
# `pytest --hypothesis-profile=random` tries others.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("random", deadline=None, database=None, max_examples=1000)
hypothesis.settings.load_profile("same")
