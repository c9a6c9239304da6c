"""The networks as MXNet symbols: four small networks, and all networks of MXNet's model zoo.

Every symbol takes `data` (batch, channels, side, side) and `softmax_label` (batch,), and returns
the probabilities (batch, classes). MXNet infers channels and side when a Module binds the symbol.
"""

import contextlib
import io
import json
from typing import List, Tuple

import mxnet as mx

from mxcluster.errors import BadInput, did_you_mean
from mxcluster.node import mxnet_compat
from mxcluster.node.mxnet_types import Symbol

# Sides of a square picture, from small to large. `picture_side` tries the sides in this order.
SIDES = (28, 32, 48, 64, 96, 128, 160, 192, 224, 256, 299)
# Networks of the model zoo halve the picture five times, so a side below 32 leaves no pixel.
MODEL_ZOO_LEAST_SIDE = 32


def names() -> List[str]:
    """Return the network names that `symbol` accepts with the installed MXNet.

    mxcluster's own networks come before the networks of MXNet's model zoo.
    """
    return sorted(OWN) + mxnet_compat.model_zoo()


def symbol(name: str, classes: int) -> Symbol:
    """Return the network `name` for `classes` classes.

    The symbol ends in a SoftmaxOutput. Raises BadInput for an unknown name.
    """
    if name in OWN:
        features = OWN[name](mx.sym.Variable("data"), classes)
    elif name in mxnet_compat.model_zoo():
        # With a fixed prefix the names in checkpoints do not depend on earlier networks.
        net = mx.gluon.model_zoo.vision.get_model(
            name, classes=classes, prefix=name.replace(".", "_") + "_"
        )
        features = net(mx.sym.Variable("data"))
    else:
        raise BadInput(
            "network %r is unknown%s: use one of %s"
            % (name, did_you_mean(name, names()), ", ".join(names()))
        )
    return mx.sym.SoftmaxOutput(features, name="softmax")


def check_loss(net: Symbol) -> None:
    """Raise BadInput unless the gradients of `net` are sums over the samples of a batch.

    MXNet's losses may divide their gradients by the batch size, or by the number of valid labels.
    Then a sample would count more on a worker with a smaller batch.
    """
    graph = json.loads(net.tojson())
    heads = {entry[0] for entry in graph["heads"]}
    for number, node in enumerate(graph["nodes"]):
        if node["op"] == "null":  # a variable, which repeats the attributes of its operator
            continue
        # The name of the entry depends on the version of MXNet.
        attributes = node.get("attrs") or node.get("attr") or node.get("param") or {}
        divides = attributes.get("normalization", "null") != "null"
        if divides or number in heads and node["op"] != "SoftmaxOutput":
            raise BadInput(
                "balance: the gradient of the loss %s (%s%s) may not be the sum over the "
                "samples of a batch. Use SoftmaxOutput without normalization, or --balance none"
                % (
                    node["name"],
                    node["op"],
                    ", normalization=%s" % attributes["normalization"] if divides else "",
                )
            )


def picture_side(name: str, net: Symbol, channels: int, side: int) -> int:
    """Return the side in pixels of the pictures that a network gets.

    The result is `side` if the network works on pictures of this side. Otherwise the result is the
    smallest larger side in SIDES on which the network works. Raises BadInput if the network works
    on none of these sides.

    Args:
        name: the name of the network.
        net: the network.
        channels: the number of channels of the data set's pictures.
        side: the side of the data set's pictures in pixels.
    """
    least = 1 if name in OWN else MODEL_ZOO_LEAST_SIDE
    for candidate in [side] + [larger for larger in SIDES if larger > side]:
        if candidate >= least and _works(net, (1, channels, candidate, candidate)):
            return candidate
    raise BadInput(
        "network %s does not work on images of %d x %d x %d pixels or on larger images: choose "
        "another --network" % (name, channels, side, side)
    )


def _works(net: Symbol, shape: Tuple[int, int, int, int]) -> bool:
    """Return True if the network `net` works on input of the shape `shape`."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # MXNet prints the shapes that do not fit
            net.infer_shape(data=shape)
    except mx.base.MXNetError:
        return False
    return True


def _mlp(data: Symbol, classes: int) -> Symbol:
    """Return a perceptron with hidden layers of 128 and 64 units.

    The network has the input `data` and `classes` outputs.
    """
    net = mx.sym.Flatten(data)
    for number, width in enumerate((128, 64), 1):
        net = mx.sym.FullyConnected(net, num_hidden=width, name="fc%d" % number)
        net = mx.sym.Activation(net, act_type="relu", name="relu%d" % number)
    return mx.sym.FullyConnected(net, num_hidden=classes, name="fc3")


def _lenet(data: Symbol, classes: int) -> Symbol:
    """Return LeNet: two 5x5 convolutions with max pooling, then one hidden layer.

    The network has the input `data` and `classes` outputs. Source: LeCun et al., Proc. IEEE 1998.
    """
    net = data
    for number, filters in enumerate((20, 50), 1):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=filters, name="conv%d" % number)
        net = mx.sym.Activation(net, act_type="tanh", name="tanh%d" % number)
        net = mx.sym.Pooling(
            net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool%d" % number
        )
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=500, name="fc1")
    net = mx.sym.Activation(net, act_type="tanh", name="tanh3")
    return mx.sym.FullyConnected(net, num_hidden=classes, name="fc2")


def _convolution(
    data: Symbol, filters: int, name: str, kernel: int = 3, stride: int = 1, relu: bool = True
) -> Symbol:
    """Return `data` after a convolution (no bias), batch normalisation and, if `relu`, a ReLU.

    The padding keeps the size of the picture for stride 1.

    Args:
        data: the input.
        filters: the number of output channels.
        name: the first part of the layers' names.
        kernel: the side of the filters in pixels.
        stride: the step of the filters in pixels.
        relu: True to add the ReLU.
    """
    net = mx.sym.Convolution(
        data,
        num_filter=filters,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        no_bias=True,
        name=name + "_conv",
    )
    net = mx.sym.BatchNorm(net, fix_gamma=False, eps=1e-5, momentum=0.9, name=name + "_bn")
    return mx.sym.Activation(net, act_type="relu", name=name + "_relu") if relu else net


def _global_average(data: Symbol, classes: int, name: str = "fc") -> Symbol:
    # The kernel has no effect, but MXNet 1.2.1 requires one.
    net = mx.sym.Pooling(data, global_pool=True, kernel=(1, 1), pool_type="avg", name="global_pool")
    return mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=classes, name=name)


def _resnet20(data: Symbol, classes: int) -> Symbol:
    """Return the residual network for CIFAR-10 with 20 layers.

    The network has the input `data` and `classes` outputs. The shortcuts have no parameters.
    Source: He et al., CVPR 2016, section 4.2.
    """
    net = _convolution(data, 16, "stem")
    for stage, filters in enumerate((16, 32, 64), 1):
        for block in (1, 2, 3):
            name = "stage%d_block%d" % (stage, block)
            shrink = stage > 1 and block == 1
            shortcut = net
            if shrink:  # Take every other pixel, and zeros for the new channels.
                shortcut = mx.sym.Pooling(
                    net, kernel=(1, 1), stride=(2, 2), pool_type="max", name=name + "_shortcut"
                )
                shortcut = mx.sym.Concat(shortcut, mx.sym.zeros_like(shortcut), dim=1)
            net = _convolution(net, filters, name + "_a", stride=2 if shrink else 1)
            net = _convolution(net, filters, name + "_b", relu=False)
            net = mx.sym.Activation(net + shortcut, act_type="relu", name=name + "_relu")
    return _global_average(net, classes)


def _inception_bn_28_small(data: Symbol, classes: int) -> Symbol:
    """Return Inception with batch normalisation, for pictures of about 28 x 28 pixels.

    The network has the input `data` and `classes` outputs. Most blocks have a 1x1 and a 3x3
    convolution in parallel. A block that halves the picture has a 3x3 convolution of stride 2 and a
    max pooling in parallel. Source: adapted from Ioffe and Szegedy, ICML 2015.
    """
    net = _convolution(data, 96, "stem")
    # Name, filters of the 1x1 convolution (0 for a block that halves the picture), filters of the
    # 3x3 convolution.
    blocks = [("3a", 32, 32), ("3b", 32, 48), ("3c", 0, 80), ("4a", 112, 48), ("4b", 96, 64)]
    blocks += [("4c", 80, 80), ("4d", 48, 96), ("4e", 0, 96), ("5a", 176, 160), ("5b", 176, 160)]
    for name, narrow, wide in blocks:
        name = "inception" + name
        if narrow:
            first = _convolution(net, narrow, name + "_1x1", kernel=1)
            second = _convolution(net, wide, name + "_3x3")
        else:
            first = _convolution(net, wide, name + "_3x3", stride=2)
            second = mx.sym.Pooling(
                net, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", name=name + "_pool"
            )
        net = mx.sym.Concat(first, second, dim=1, name=name)
    return _global_average(net, classes)


OWN = {
    "mlp": _mlp,
    "lenet": _lenet,
    "resnet20": _resnet20,
    "inception-bn-28-small": _inception_bn_28_small,
}
