"""Drumbeat and its peers, side by side in one run: `python -m bench`, or `make bench`.

Nothing here is part of the library, and nothing in the library imports it. Linux only: CPU time and memory of a worker
are read from /proc, and CLOCK_MONOTONIC is taken to be common to all processes of the host.
"""
