"""Drumbeat's program for `bench.dispatch`."""

import os

from bench.sink_program import program

app, remind = program(os.environ)
