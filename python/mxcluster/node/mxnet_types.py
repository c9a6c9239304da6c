"""Name the classes of MXNet. MXNet has no types, so each name stands for Any."""

from typing import Any

Context = Any  # mx.Context
DataBatch = Any  # mx.io.DataBatch
KVStore = Any  # mx.kv.KVStore
Library = Any  # MXNet's C library, with functions of any arguments
Method = Any  # a function or method of MXNet
Module = Any  # mx.mod.Module
NDArray = Any  # mx.nd.NDArray
Optimizer = Any  # mx.optimizer.Optimizer
Package = Any  # the module mxnet, or numpy as MXNet uses it
Parameters = Any  # a dict that MXNet defines, such as compression_params
State = Any  # of an optimizer for a parameter: None, a value, or nested tuples of values
Symbol = Any  # mx.sym.Symbol
Trainer = Any  # mx.gluon.Trainer
