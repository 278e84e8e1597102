"""Exit codes of our processes, and an exit status as text."""

import signal

EXIT_OK = 0
EXIT_NOT_STARTED = 1
"""A start-up task failed; a restart may help."""
EXIT_ORPHANED = 1
"""The parent was gone before the process could do its work."""
EXIT_CONFIG_ERROR = 2
"""The program or its settings are wrong: a restart does not help."""
EXIT_CANNOT_SERVE = 3
"""A child process cannot load the program, or a lifespan of it failed."""
EXIT_REPLACE = 70
"""Too many handlers are stuck: start this worker again."""
EXIT_FORKED_COPY = 70
"""A handler forked, and its copy came back to the worker's code with an exception."""
EXIT_RECYCLE = 71
"""`max_jobs` or `max_memory` is reached: start this worker again."""
EXIT_NO_STORE = 75
"""The store has been unreachable for long and nothing runs: start this worker again later (EX_TEMPFAIL)."""
EXIT_UNKNOWN = 255
"""The program ignores SIGCHLD or reaps every child itself."""


def describe_exit(exit_code: int) -> str:
    """`SIGKILL`, `exit code 3`; `exit_code` is negative for a signal, as in `subprocess`."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
