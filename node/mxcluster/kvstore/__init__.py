"""The kv-stores ``dist_gsync`` (Grouping-SGD) and ``dist_ssync`` (SSP) on stock MXNet wheels.

Stock MXNet accepts both names and silently trains something else with them: synchronously, with a gradient
W times too large.  Here they are real.  A job runs in ps-lite's async mode, and what makes it grouped or
stale-synchronous is ours, at both ends:

- on a worker, `gsync.GroupedStore` or `ssync.StaleStore`: a ``KVStore`` that a script gets from
  ``mx.kv.create`` once `install.install` has run;
- on a server, `merge.GroupMerge` or `merge.StaleUpdate` around the user's optimizer, which the first worker sends there.

`keys` lays out the integer keys, `step` holds what needs neither MXNet nor a network.
"""
