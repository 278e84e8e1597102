"""Results of health checks of a store and of the cluster on it. Values only."""

from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc


class HealthLevel(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing, nothing to do
    WARN = "warn"  # will be a problem, or is a small one
    BAD = "bad"  # something does not work, or will be lost


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    name: Annotated[str, doc('The subject: "clock offset", "queue mail".')]
    level: HealthLevel
    value: Annotated[str, doc("What was found.")]
    advice: Annotated[str, doc("What to do; empty: nothing.")] = ""
