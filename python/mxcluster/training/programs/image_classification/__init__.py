"""Image classification: the training program that `train.yml` runs without a script.

The program uses MXNet's Module API, which works with every kv-store on every MXNet from 1.2.1 to
1.9.1. (Gluon's Trainer of 1.2.1 cannot drive dist_async.) The program needs only mxnet and numpy.

The environment gives this worker's index (MXCLUSTER_INDEX), the groups (MXCLUSTER_GROUPS), and the
job folder with the shares of the data (MXCLUSTER_JOB_DIR).
"""
