"""Where this measure's files are, as the harness says by the environment."""

import os
from pathlib import Path

from bench.apps import FOLDER_NAME
from bench.crowd import Member
from bench.ledger import Ledger

ledger = Ledger.from_environment()
member = Member()


def folder() -> Path:
    return Path(os.environ[FOLDER_NAME])
