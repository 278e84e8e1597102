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

from drumbeat.clock import Clock
from drumbeat.codec import make_storable
from drumbeat.core import audit
from drumbeat.durations import from_us
from drumbeat.errors import DrumbeatError, InvalidArguments, StoreError
from drumbeat.ids import is_job_id, new_job_id
from drumbeat.names import check_number, short_repr
from drumbeat.store.protocol import Store
from drumbeat.sync_loop import SYNC_LOOP, SyncMethod, SyncPart

from .bulk import BulkProgress
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


class RecordedProgress(BulkProgress):
    """The progress of a bulk action, on record in the store: everybody sees it, and can stop it."""

    def __init__(self, store: Store, clock: Clock, act: str, matched: int | None) -> None:
        super().__init__(matched)
        self._audit = store.audit
        self._clock = clock
        self._act = act
        self._reported: float | None = None

    async def report(self) -> None:
        """Write it, twice a second at most, and learn whether somebody has asked it to stop."""
        now = self._clock.monotonic()
        if self._reported is not None and now - self._reported < audit.REPORT_INTERVAL:
            return
        self._reported = now
        try:
            by = await self._audit.report_progress(self._act, touched=self.touched, matched=self.matched)
        except StoreError as error:
            # The action itself fails if the store stays away; it is told as interrupted meanwhile.
            log.warning("progress of an act was not recorded", extra={"act": self._act, "reason": str(error)})
            return
        if by is not None:
            self.stop(by)


class Audit(AdminPart):
    """Read the audit log, add entries, stop what runs."""

    async def list(
        self,
        *,
        who: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        before: str | None = None,
        limit: int = 50,
        unended: bool = False,
    ) -> builtins.list[audit.AuditEntry]:
        """Entries, newest first; `before=` the last one's id gives the next page. `verb` is a prefix, such as "queues.".

        unended: only acts on many jobs that have no recorded end: they are running, or were interrupted (`state`).
        """
        store = await self._client.store()
        texts = {"who": who, "verb": verb, "target": target}
        chosen = {name: _check_text(name, text) for name, text in texts.items() if text is not None}
        return await store.audit.list_page(
            audit.AuditFilter(
                before=_check_before(before),
                limit=check_number("limit", limit, 1, MAX_LISTED),
                unended=unended,
                **chosen,
            )
        )

    async def show(self, id: str) -> audit.AuditEntry:
        """One entry, with the result of its action."""
        found = await (await self._client.store()).audit.get(id) if is_job_id(id) else None
        if found is None:
            raise InvalidArguments(f"there is no act {short_repr(id)} on record", "id")
        return found

    async def state(self, entry: audit.AuditEntry) -> audit.ActState:
        """Whether an act has ended, is running, or was interrupted: its process died before it could record the end."""
        return audit.act_state(entry, from_us(await (await self._client.store()).inspect.now()))

    async def stop(self, id: str, *, by: str | None = None) -> audit.AuditEntry:
        """Ask an act on many jobs to stop, in whichever process it runs: it ends within about a second. What is done stays
        done.

        Raises:
            InvalidArguments: there is no such act; it has ended, was interrupted, or cannot be stopped.
        """
        who, entry = self._check_by(by), await self.show(id)
        store = await self._client.store()
        state = await self.state(entry)
        if state is audit.ActState.RUNNING and await store.audit.request_stop(id, who):
            return await self.show(id)
        entry = await self.show(id)
        match await self.state(entry):
            case audit.ActState.ENDED:
                problem = f"has ended: {entry.outcome}"
            case audit.ActState.INTERRUPTED:
                problem = "was interrupted: its process has ended, and the rest was not done"
            case audit.ActState.RUNNING:
                problem = "reports no progress: it cannot be stopped"
        raise InvalidArguments(f"act {id} {problem}", "id")

    async def progress(self, act: ActInProgress, *, matched: int | None = None) -> BulkProgress:
        """The progress of a bulk action inside of `act(...)`, for `app.jobs.bulk(..., progress=)`: everybody can watch it,
        and stop it with `app.audit.stop`, the dashboard or `drumbeat audit stop`."""
        made = RecordedProgress(await self._client.store(), self._client.clock, act.id, matched)
        await made.report()
        return made

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
    state = SyncMethod(Audit.state)
    stop = SyncMethod(Audit.stop)
    progress = SyncMethod(Audit.progress)

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
