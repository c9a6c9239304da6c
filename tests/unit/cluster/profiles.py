"""Make measured profiles for tests."""

from mxcluster.cluster import profile
from mxcluster.model.profile import MeasuredProfile


def completed(content):
    """Return the profile with the measured part `content`, a dict."""
    return profile.complete(MeasuredProfile.decode(content))


def measured(speeds, servers=(100.0,), alone=None, exchange=0.001, spread=0.01, **more):
    """Return the measured part of a profile.

    Args: `speeds` {host: samples/s together of each worker, a number or a list}; `servers` the
    updates a second of each server, all on the first host; `alone` {host: samples/s alone}, by
    default those together.
    """
    workers = []
    for host, values in speeds.items():
        for number, value in enumerate(values if isinstance(values, list) else [values]):
            worker = {"host": host, "number": number, "exchange_s": exchange}
            speed_alone = (alone or {}).get(host, value)
            worker["alone"] = {"samples_per_s": speed_alone, "spread": spread}
            worker["together"] = {"samples_per_s": value, "spread": spread}
            worker["servers"] = [{"push_s": 0.001, "pull_s": 0.001} for _ in servers]
            workers.append(worker)
    made = {"schema": 1, "job": "profile-1", "time": 1763900000.5, "mxnet": "1.9.1"}
    made.update(network="mlp", batch_size=32, data="digits", parameters=[100, 10, 50, 5])
    first = next(iter(speeds))
    made["servers"] = [
        {"host": first, "number": number, "updates_per_s": speed}
        for number, speed in enumerate(servers)
    ]
    return dict(made, workers=workers, **more)
