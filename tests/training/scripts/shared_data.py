"""Read data with Gluon and with an iterator, each divided by mxcluster.share.

Usage: shared_data.py SAMPLES BATCH_SIZE RECORDS
"""

import sys

import mxnet as mx
from mxnet import gluon

from mxcluster import share

samples, size, records = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
kv = mx.kv.create("dist_sync")
print("KNOWN", share.index(), share.num_workers(), kv.rank, kv.num_workers)
dataset = gluon.data.SimpleDataset(list(range(samples)))
sampler = share.Sampler(samples, batch_size=size)
loader = gluon.data.DataLoader(dataset, batch_size=size, sampler=sampler)
for _ in range(2):
    batches = [batch.asnumpy().astype(int).tolist() for batch in loader]
    print("GLUON", len(batches), *sum(batches, []))
iterator = mx.io.ImageRecordIter(
    path_imgrec=records,
    data_shape=(3, 8, 8),
    batch_size=size,
    num_parts=share.num_parts(),
    part_index=share.part_index(),
)
labels = []
for batch in iterator:
    labels += batch.label[0].asnumpy().astype(int).tolist()[: size - batch.pad]
print("RECORDS", 0, *labels)
