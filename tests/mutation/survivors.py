"""Reads survivors.md: a list of mutants that no test notices, each with the reason why none has to."""

import re
from pathlib import Path

SURVIVORS = Path(__file__).with_name("survivors.md")
EXPLAINED = re.compile(r"^- `([^`]+:[a-z_]+:[0-9a-f]{8})`:? *(\S.*)$", re.MULTILINE)


def read_explanations(text: str) -> dict[str, str]:
    return {found[1]: found[2] for found in EXPLAINED.finditer(text)}
