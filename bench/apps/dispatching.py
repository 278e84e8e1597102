"""Drumbeat's program for `bench.dispatch`."""

import os

from bench.sending import program

app, remind = program(os.environ)
