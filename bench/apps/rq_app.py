"""RQ's program: plain functions, called by their names."""

from bench.apps.folder import ledger


def stamp(number):
    ledger.stamp(number)


def stamp_wall(number):
    ledger.stamp_wall(number)


def other(number):
    ledger.stamp(number)
