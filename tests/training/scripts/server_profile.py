"""Profile the servers, as MXNet's own example does; argument: kv."""

import sys

import mxnet as mx

kv = mx.kv.create(sys.argv[1])
for call in (
    lambda: mx.profiler.set_config(filename="worker.json", profile_all=True),
    lambda: mx.profiler.set_state("stop", profile_process="worker"),
    lambda: mx.profiler.set_config(filename="s.json", profile_all=True, profile_process="server"),
    lambda: mx.profiler.set_state(state="run", profile_process="server"),
    lambda: mx.profiler.set_state("run", "server"),
    lambda: mx.profiler.dump(profile_process="server"),
    lambda: mx.profiler.pause("server"),
    lambda: mx.profiler.resume(profile_process="server"),
):
    try:
        call()
        print("ACCEPTED")
    except ValueError as error:
        print("REFUSED", error)
