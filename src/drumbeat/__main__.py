"""`python -m drumbeat` is the same program as `drumbeat`."""

from __future__ import annotations

from drumbeat.cli import main

if __name__ == "__main__":
    main()
