"""A worker: it claims jobs, runs them and reports their outcomes."""

from drumbeat.worker.worker import Worker

__all__ = ["Worker"]
