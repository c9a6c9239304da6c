"""Name the classes of MXNet. MXNet has no types, so each name stands for Any."""

from typing import Any

Context = Any  # mx.Context
DataBatch = Any  # mx.io.DataBatch
KVStore = Any  # mx.kv.KVStore
Module = Any  # mx.mod.Module
NDArray = Any  # mx.nd.NDArray
Optimizer = Any  # mx.optimizer.Optimizer
Package = Any  # the module mxnet, or numpy as MXNet uses it
Symbol = Any  # mx.sym.Symbol
