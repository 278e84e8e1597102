"""`app.audit`: the audit log: who did what, when, to how many, and for which reason.

An entry is written before the action: the dashboard, the command line and your own scripts act inside `app.audit.act(...)`.
What programs do by themselves is not recorded.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TypedDict, Unpack

import msgspec

from drumbeat.codec import make_storable
from drumbeat.core import audit
from drumbeat.errors import DrumbeatError, InvalidArguments, StoreError
from drumbeat.ids import is_job_id, new_job_id
from drumbeat.names import check_number, short_repr
from drumbeat.sync_loop import SYNC_LOOP, SyncMethod, SyncPart

from .part import AdminPart

log = logging.getLogger(__name__)

MAX_LISTED = 10_000
_MAX_OUTCOME_LENGTH = 500


class ActOptions(TypedDict, total=False):
    """Of an audit entry, besides who, verb and target."""

    role: str
    via: str
    """Default: "python"."""
    reason: str


class ActInProgress(msgspec.Struct):
    """An action that is being recorded: set `touched` to the number of changed things."""

    id: str
    touched: int = 0
    outcome: str = "done"
    answer: str | None = None
    """JSON text of the result, such as the id of a new job; None: none is kept."""


class Audit(AdminPart):
    """Read the audit log, and add entries."""

    async def list(
        self,
        *,
        who: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> builtins.list[audit.AuditEntry]:
        """Entries, newest first; `before=` the last one's id gives the next page. `verb` is a prefix, such as "queues."."""
        store = await self._client.store()
        texts = {"who": who, "verb": verb, "target": target}
        chosen = {name: _check_text(name, text) for name, text in texts.items() if text is not None}
        return await store.audit.list_page(
            audit.AuditFilter(before=_check_before(before), limit=check_number("limit", limit, 1, MAX_LISTED), **chosen)
        )

    async def show(self, id: str) -> audit.AuditEntry:
        """One entry, with the result of its action."""
        found = await (await self._client.store()).audit.get(id) if is_job_id(id) else None
        if found is None:
            raise InvalidArguments(f"there is no act {short_repr(id)} on record", "id")
        return found

    @contextlib.asynccontextmanager
    async def act(
        self, *, who: str, verb: str, target: str, **more: Unpack[ActOptions]
    ) -> AsyncIterator[ActInProgress]:
        """Record what the block does: `async with app.audit.act(who="ada", verb="queues.pause", target="mail") as act: ...`.

        Set `act.touched` to the number of changed things. An exception of the block is recorded as refused or failed.
        """
        acting = await self.begin(new_act(who=who, verb=verb, target=target, **more))
        try:
            yield acting
        except BaseException as error:
            await self.end(acting, error)
            raise
        await self.end(acting, None)

    async def begin(self, act: audit.NewAuditEntry) -> ActInProgress:
        """For `act` here and in `app.sync`: write the entry."""
        await (await self._client.store()).audit.begin(act)
        return ActInProgress(act.id)

    async def end(self, act: ActInProgress, error: BaseException | None) -> None:
        """For `act` here and in `app.sync`: write the outcome."""
        outcome = act.outcome if error is None else _describe_outcome(error)
        try:
            store = await self._client.store()
            await store.audit.end(act.id, touched=act.touched, outcome=outcome, answer=act.answer)
        except StoreError as lost:
            # The entry shows that it began. The caller must learn the result nevertheless.
            log.warning("outcome of an act was not recorded", extra={"act": act.id, "reason": str(lost)})


class SyncAudit(SyncPart[Audit]):
    """As `app.audit`, for code without an event loop."""

    list = SyncMethod(Audit.list)
    show = SyncMethod(Audit.show)

    @contextlib.contextmanager
    def act(self, *, who: str, verb: str, target: str, **more: Unpack[ActOptions]) -> Iterator[ActInProgress]:
        """As `app.audit.act`: `with app.sync.audit.act(...) as act: ...`."""
        begun = self._part.begin(new_act(who=who, verb=verb, target=target, **more))
        acting = SYNC_LOOP.run("app.sync.audit.act", begun)
        try:
            yield acting
        except BaseException as error:
            SYNC_LOOP.run("app.sync.audit.act", self._part.end(acting, error))
            raise
        SYNC_LOOP.run("app.sync.audit.act", self._part.end(acting, None))


def new_act(*, who: str, verb: str, target: str, **more: Unpack[ActOptions]) -> audit.NewAuditEntry:
    """A new entry, its text made storable."""
    return audit.NewAuditEntry(
        id=new_job_id(),
        who=make_storable(who, audit.MAX_NAME_LENGTH),
        role=make_storable(more.get("role", ""), audit.MAX_NAME_LENGTH),
        via=make_storable(more.get("via", "python"), audit.MAX_NAME_LENGTH),
        verb=make_storable(verb, audit.MAX_NAME_LENGTH),
        target=make_storable(target, audit.MAX_TARGET_LENGTH),
        reason=make_storable(more.get("reason", ""), audit.MAX_REASON_LENGTH),
    )


def _check_before(value: object) -> str | None:
    if value is not None and not (isinstance(value, str) and is_job_id(value)):
        raise InvalidArguments(f"before must be the id of an act, not {short_repr(value)}", "before")
    return value


def _check_text(name: str, text: object) -> str:
    if not isinstance(text, str) or make_storable(text, audit.MAX_TARGET_LENGTH) != text:
        raise InvalidArguments(
            f"{name} must be text of at most {audit.MAX_TARGET_LENGTH} characters, not {short_repr(text)}", name
        )
    return text


def _describe_outcome(error: BaseException) -> str:
    if isinstance(error, DrumbeatError) and not isinstance(error, StoreError):
        return "refused"
    return make_storable(f"failed: {type(error).__name__}: {error}", _MAX_OUTCOME_LENGTH)
