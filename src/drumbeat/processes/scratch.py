"""Where sockets and files that live as long as a process are put."""

import os
import tempfile

from drumbeat.errors import ConfigError

SHARED_MEMORY = "/dev/shm"
"""Writable in a container whose root file system is read-only."""


def scratch_folder() -> str:
    """The folder for temporary files: TMPDIR, the system's, or shared memory.

    Raises:
        ConfigError: none can be written.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        if os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
            return SHARED_MEMORY
        raise ConfigError("no folder for temporary files can be written: mount one at /tmp, or set TMPDIR") from None
