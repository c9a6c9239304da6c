"""Make two kv-stores, as a library of a script may do; arguments: their names, and "threads".

With "threads" two threads make them at the same time.
"""

import sys
import threading

import mxnet as mx

names, made = sys.argv[1:3], {}


def make(number):
    made[number] = mx.kv.create(names[number])


if "threads" in sys.argv:
    threads = [threading.Thread(target=make, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    make(0)
    make(1)
a, b = made[0], made[1]
print("SAME", a is b, a.type, a.rank)
a.init("w", mx.nd.zeros((4,)))
b.init("v", mx.nd.zeros((4,)))
for key, store in (("w", a), ("v", b)):
    store.push(key, mx.nd.ones((4,)))
    out = mx.nd.zeros((4,))
    store.pull(key, out=out)
    print(key, out.asnumpy().tolist())
