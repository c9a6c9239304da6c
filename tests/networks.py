"""Addresses for tests that open ports: no two test processes of a machine have the same."""

import functools
import socket

HOLDER = 250  # the last number of the address whose port shows that a network is taken
PORT = 20009


@functools.lru_cache(maxsize=None)
def own_network():
    """Return the first three numbers of a loopback network of this process, such as "127.60.0".

    The process holds a port of the network until it ends. The kernel then frees the port, so that a
    killed run leaves nothing, and two runs at once take different networks.
    """
    for number in range(60 * 256, 128 * 256):
        network = "127.%d.%d" % divmod(number, 256)
        holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            holder.bind(("%s.%d" % (network, HOLDER), PORT))
        except OSError:  # another test process has the network
            holder.close()
            continue
        _held.append(holder)
        return network
    raise AssertionError("every network from 127.60.0 to 127.127.255 is taken")


_held = []
