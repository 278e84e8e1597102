"""The descriptors 0 to 2: what a process opens while one of them is closed may get its number, and be taken for a stream."""

import fcntl
import os


def reopen_streams() -> list[int]:
    """Reopen on /dev/null those of the descriptors 0 to 2 that the program has closed. Returns their numbers."""
    closed = []
    for number in (0, 1, 2):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)  # the cheapest check
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            closed.append(number)
    return closed
