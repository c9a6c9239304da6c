"""The kv-stores ``dist_gsync`` (Grouping-SGD) and ``dist_ssync`` (SSP) on stock MXNet wheels.

Stock MXNet accepts both names and silently trains something else with them: synchronously, with a gradient W times too large.
Here they are real. docs/schemes.md says what they do.

====================  ===============================  ====================================================================
where                 ``dist_gsync``, several groups   ``dist_ssync``
====================  ===============================  ====================================================================
on a worker           `gsync.GroupedStore`             `ssync.StaleStore`, both of them a `base.OwnStore`
on top of MXNet's     sync mode, with a server         async mode
                      process for each group
on a server           `group.GroupUpdate`              `stale.StaleUpdate`
what is shared        `shared.Memory` of a host        a clock under a key of its own
====================  ===============================  ====================================================================

`install` puts them into ``mx.kv.create``, `orders` and `agreement` are what workers tell servers, `seal` and `guard` what servers
believe, `states` what checkpoints hold.
"""
