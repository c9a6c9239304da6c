"""Add up the gradients of three passes of a network with BatchNorm.

The script writes the largest difference between their sum, divided by 3, and the gradient of one
pass, relative to the largest gradient of the parameter.
"""

import mxnet as mx
import numpy as np

from mxcluster.training.programs.image_classification import gradients, networks

net = networks.symbol("resnet20", 10)
module = mx.mod.Module(net)
shapes = [("data", (4, 1, 28, 28))], [("softmax_label", (4,))]
module.bind(*shapes, grad_req=gradients.requests(net, ["data", "softmax_label"]))
mx.random.seed(1)
module.init_params(mx.init.Xavier())
found = gradients.Gradients(module)
pictures = mx.nd.array(np.random.RandomState(1).normal(size=(4, 1, 28, 28)))
batch = mx.io.DataBatch([pictures], [mx.nd.arange(4)])
sums = []
for passes in (1, 3):
    found.clear()
    for _ in range(passes):
        module.forward_backward(batch)
        found.add_up()
    found.close(1.0 / passes)
    sums.append([arrays[0].asnumpy() for arrays in module._exec_group.grad_arrays])
least = min(np.abs(one).max() for one in sums[0])
assert least > 0, "a parameter has no gradient"
print(max(np.abs(one - three).max() / np.abs(one).max() for one, three in zip(*sums)))
