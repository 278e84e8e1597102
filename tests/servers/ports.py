"""Ports for servers that tests start, and for those that nobody must find there."""

import random
import socket
from contextlib import suppress

# Not the seeded one of a property: two processes would be given the same ports.
_CHANCE = random.SystemRandom()


def free_port() -> int:
    """A free one that no client is given while a server is not up yet, or is down for a moment.

    Those below 32,768 are given to whoever asks for them, never to a client that asks for any. The nodes of a Redis cluster
    talk to each other 10,000 ports higher.
    """
    while True:
        port = _CHANCE.randrange(10_000, 22_000)
        with socket.socket() as one, socket.socket() as other, suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port
