"""`app.audit`: who did what, when, to how many, and why.

An act is on record before it is done: whoever acts for a person (the dashboard, the command line, a script of yours) does it
inside `app.audit.act(...)`. What a program does by itself is not recorded.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TypedDict, Unpack

from drumbeat.client import Client
from drumbeat.codec import storable
from drumbeat.errors import DrumbeatError, InvalidArguments, StoreError
from drumbeat.ids import is_job_id, new_job_id
from drumbeat.model.audit import LONGEST_NAME, LONGEST_TARGET, LONGEST_WHY, Act, NewAct
from drumbeat.names import shown
from drumbeat.sync import THREAD, blocking

log = logging.getLogger(__name__)

MOST_LISTED = 10_000
_LONGEST_OUTCOME = 500


class ActOptions(TypedDict, total=False):
    """What is known of an act besides who, verb and target."""

    role: str
    via: str
    """"python" if it is not said."""
    why: str


class Acting:
    """An act that is being done: say how many it touched."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.touched = 0
        self.outcome = "done"
        self.answer: str | None = None
        """JSON text of what came of it, such as the job that was made; None: nothing worth keeping."""


class Audit:
    """Look at the record, and put acts on it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self,
        *,
        who: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> builtins.list[Act]:
        """Acts, newest first; `before=` the last one's id gives the next page. `verb` is the beginning of one: "queues."."""
        store = await self._client.store()
        wanted = {"who": who, "verb": verb, "target": target}
        chosen = {name: _part(name, text) for name, text in wanted.items() if text is not None}
        return await store.audit.page(before=_before(before), limit=_limit(limit), **chosen)

    async def show(self, id: str) -> Act:
        """One act, with the answer that was given."""
        found = await (await self._client.store()).audit.get(id) if is_job_id(id) else None
        if found is None:
            raise InvalidArguments(f"there is no act {shown(id)} on record", "id")
        return found

    @contextlib.asynccontextmanager
    async def act(self, *, who: str, verb: str, target: str, **more: Unpack[ActOptions]) -> AsyncIterator[Acting]:
        """Do something on record: `async with app.audit.act(who="ada", verb="queues.pause", target="mail") as act: ...`.

        Set `act.touched` to how many it changed. What the block raises goes on, and is on record as refused or failed.
        """
        acting = await self.begin(new_act(who=who, verb=verb, target=target, **more))
        try:
            yield acting
        except BaseException as error:
            await self.end(acting, error)
            raise
        await self.end(acting, None)

    async def begin(self, act: NewAct) -> Acting:
        """For `act` here and in `app.sync`: put it on record."""
        await (await self._client.store()).audit.begin(act)
        return Acting(act.id)

    async def end(self, acting: Acting, error: BaseException | None) -> None:
        """For `act` here and in `app.sync`: put on record how it ended."""
        outcome = acting.outcome if error is None else _outcome(error)
        try:
            store = await self._client.store()
            await store.audit.end(acting.id, touched=acting.touched, outcome=outcome, answer=acting.answer)
        except StoreError as lost:
            # It is on record that it was begun. What was done must be told to the caller all the same.
            log.warning("end of an act was not recorded", extra={"act": acting.id, "reason": str(lost)})


class SyncAudit:
    """As `app.audit`, for code without a loop."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.list = blocking("app.sync.audit.list", audit.list)
        self.show = blocking("app.sync.audit.show", audit.show)

    @contextlib.contextmanager
    def act(self, *, who: str, verb: str, target: str, **more: Unpack[ActOptions]) -> Iterator[Acting]:
        """As `app.audit.act`: `with app.sync.audit.act(...) as act: ...`."""
        begun = self._audit.begin(new_act(who=who, verb=verb, target=target, **more))
        acting = THREAD.call("app.sync.audit.act", begun)
        try:
            yield acting
        except BaseException as error:
            THREAD.call("app.sync.audit.act", self._audit.end(acting, error))
            raise
        THREAD.call("app.sync.audit.act", self._audit.end(acting, None))


def new_act(*, who: str, verb: str, target: str, **more: Unpack[ActOptions]) -> NewAct:
    """An act with texts that every store can keep."""
    return NewAct(
        id=new_job_id(),
        who=storable(who, LONGEST_NAME),
        role=storable(more.get("role", ""), LONGEST_NAME),
        via=storable(more.get("via", "python"), LONGEST_NAME),
        verb=storable(verb, LONGEST_NAME),
        target=storable(target, LONGEST_TARGET),
        why=storable(more.get("why", ""), LONGEST_WHY),
    )


def _limit(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_LISTED:
        raise InvalidArguments(f"limit must be a whole number from 1 to {MOST_LISTED}, not {shown(value)}", "limit")
    return value


def _before(value: object) -> str | None:
    if value is not None and not (isinstance(value, str) and is_job_id(value)):
        raise InvalidArguments(f"before must be the id of an act, not {shown(value)}", "before")
    return value


def _part(name: str, text: object) -> str:
    if not isinstance(text, str) or storable(text, LONGEST_TARGET) != text:
        raise InvalidArguments(f"{name} must be text of at most {LONGEST_TARGET} characters, not {shown(text)}", name)
    return text


def _outcome(error: BaseException) -> str:
    if isinstance(error, DrumbeatError) and not isinstance(error, StoreError):
        return "refused"
    return storable(f"failed: {type(error).__name__}: {error}", _LONGEST_OUTCOME)
