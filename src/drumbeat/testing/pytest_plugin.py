"""The pytest plugin: one fixture. Installed with the package, so a test file needs no import."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from drumbeat.testing.kit import Kit


@pytest.fixture
def drumbeat() -> type[Kit]:
    """The testing kit: `async with drumbeat(app) as kit`, or `with drumbeat(app) as kit` in a `def` test."""
    from drumbeat.testing.kit import Kit  # imported late: most tests of a program need none of it

    return Kit
