"""What a store that went back in time is excused from: exactly what it acknowledged in the window that it has lost.

A Redis replica that is promoted lacks what it had not received (docs/redis.md). Whatever was told before the window must be
there, nothing may be half there, and tokens never go back.
"""

from collections.abc import Sequence

import msgspec

from tests.chaos.journal import Entry
from tests.proof.history import History


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the store did before `start` is kept, and everything after `end`. On the monotonic clock, in seconds."""

    start: float
    end: float
    first_token: int
    """Tokens are made of the store's time: those from here to `last_token` were given in the window."""
    last_token: int

    def has_token(self, token: int) -> bool:
        return self.first_token <= token <= self.last_token


def excuse_rollbacks(
    entries: Sequence[Entry], history: History, rollbacks: Sequence[Rollback], *, patience: float
) -> None:
    """Take out of a history what a rollback may have undone.

    `patience`: how long after the effect a process may write down what it was told (it may be stopped in between), or believe
    what is no longer so.
    """
    if not rollbacks:
        return
    answered = {id: entry.at for entry in entries if entry.event == "acknowledged" for id in entry.facts["ids"]}
    history.enqueued = [
        msgspec.structs.replace(call, acknowledged=False)
        if call.acknowledged
        and any(call.at <= each.end and answered.get(call.id, 0.0) >= each.start for each in rollbacks)
        else call
        for call in history.enqueued
    ]
    history.cancels = [
        cancel
        for cancel in history.cancels
        if not any(each.start <= cancel.at <= each.end + patience for each in rollbacks)
    ]
    recorded = {(job.id, attempt.token) for job in history.jobs for attempt in job.attempts}
    history.started = [
        run
        for run in history.started
        if (run.job, run.token) in recorded or not any(each.has_token(run.token) for each in rollbacks)
    ]
    history.rates = [
        grant for grant in history.rates if not any(each.has_token(round(grant.at * 1e6)) for each in rollbacks)
    ]
    terms = {
        entry.facts["term"]
        for entry in entries
        if entry.event == "leader" and any(each.start <= entry.at <= each.end + patience for each in rollbacks)
    }
    history.leaders = [seen for seen in history.leaders if seen.term not in terms]
