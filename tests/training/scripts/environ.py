"""Set variables before the import of MXNet, as most tutorials say; argument: kv."""

import os
import sys

os.environ["OMP_NUM_THREADS"] = "3"
os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = "100"

import mxnet as mx  # noqa: E402

kv = mx.kv.create(sys.argv[1])
kv.init("w", mx.nd.zeros((4,)))
