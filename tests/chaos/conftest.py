"""The short runs of chaos take half a minute each: `make system` runs them, and `make chaos` as long as one likes."""

import os

collect_ignore = [] if os.environ.get("DRUMBEAT_FULL") else ["test_chaos.py"]
