"""An edge from a parent to its child, as a caller gives it with the child. What follows from it: core/dependencies.py."""

from enum import StrEnum

import msgspec

from drumbeat.ids import JobId


class IfParentFails(StrEnum):
    """What becomes of a child when a parent dies, is cancelled, expires or is discarded."""

    CANCEL = "cancel"  # it is cancelled, too; the replay of a dead parent makes it wait again
    RUN = "run"  # it runs
    WAIT = "wait"  # of a dead letter it waits for the replay; cancelled, as by CANCEL, if nobody can replay the parent any more


class Binding(StrEnum):
    """What a child gets of a parent, as an argument."""

    NONE = ""
    RESULT = "result"
    OUTCOME = "outcome"  # the result, or how it failed
    RESULTS = "results"  # of many parents one argument, read in pages


class NewEdge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A child waits for a parent. The edges of a child are in the order in which it names its parents."""

    parent: JobId
    child: JobId
    if_fails: IfParentFails = IfParentFails.CANCEL
    binding: Binding = Binding.NONE
    argument: str = ""
    """The parameters of the child that get it, separated by spaces."""
