"""Workers that do not agree on what the servers need to know of all of them. Arguments: kv, what (names, rescale_grad, class)."""
import os
import sys

import mxnet as mx

kv, what = mx.kv.create(sys.argv[1]), sys.argv[2]
other = os.environ["MXCLUSTER_INDEX"] == "1"
names = ["b", "a"] if other and what == "names" else ["a", "b"]
kv.init(names, [mx.nd.zeros((2,))] * 2)
kv.set_optimizer(mx.optimizer.Adam() if other and what == "class" else
                 mx.optimizer.SGD(rescale_grad=0.25 if other and what == "rescale_grad" else 0.5))
kv.push("a", mx.nd.ones((2,)))
kv._barrier()
