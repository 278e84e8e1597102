"""Locks, measured: `python -m bench.locks`. Each figure beside the one that it is to be compared with, in one run."""
