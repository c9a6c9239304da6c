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
            workers.append(
                {
                    "host": host,
                    "number": number,
                    "alone": {
                        "samples_per_s": (alone or {}).get(host, value),
                        "spread": spread,
                    },
                    "together": {"samples_per_s": value, "spread": spread},
                    "servers": [{"push_s": 0.001, "pull_s": 0.001} for _ in servers],
                    "exchange_s": exchange,
                }
            )
    return dict(
        {
            "schema": 1,
            "job": "profile-1",
            "time": 1763900000.5,
            "network": "mlp",
            "batch_size": 32,
            "data": "digits",
            "mxnet": "1.9.1",
            "parameters": [100, 10, 50, 5],
            "workers": workers,
            "servers": [
                {"host": next(iter(speeds)), "number": number, "updates_per_s": speed}
                for number, speed in enumerate(servers)
            ],
        },
        **more,
    )
