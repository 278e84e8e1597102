"""From what somebody types or clicks to the filter of the API: the search box's one line, and the fields of the jobs page.

A line from the box is made into fields, and the browser sent there: what is found has an address that says what it means.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from drumbeat.durations import seconds
from drumbeat.errors import InvalidArguments
from drumbeat.ids import is_job_id
from drumbeat.model.job import JobState, View
from drumbeat.web.api import jobs, queues, tasks
from drumbeat.web.api.filters import Chosen, Listed
from drumbeat.web.call import Call

from .stretch import Stretch

STATES = (*View, JobState.RUNNING, JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED)
WORDS = ("state", "task", "queue", "key", "error", "schedule", "instance", "since", "until", "id")
ENDED = ("ended_since", "ended_until")
_PAIR = re.compile(r'(?<!\w)(\w++):(?:"([^"]*)"|(\S+))')
_ID_START = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")


class JobsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What the address of the jobs page may say. Moments are ISO 8601 (UTC without an offset), or how long ago: 15m, 2h."""

    q: str | None = None
    state: str | None = None
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error: str | None = None
    schedule: str | None = None
    instance: str | None = None
    since: str | None = None
    until: str | None = None
    id: str | None = None
    ended_since: str | None = None
    ended_until: str | None = None
    """What a bar of a chart means; the filter of the API has no such words."""
    before: str | None = None
    limit: int = 50

    def fields(self) -> dict[str, str]:
        """Those that narrow, as the address has them."""
        return {name: value for name in (*WORDS, *ENDED) if (value := getattr(self, name)) is not None}


def chosen_of(query: JobsQuery, now: datetime) -> Chosen:
    """The same for the API.

    Raises:
        InvalidArguments: a moment that cannot be read.
    """
    given: dict[str, object] = {name: value for name, value in query.fields().items() if name in WORDS}
    for name in ("since", "until"):
        if (text := given.get(name)) is not None:
            given[name] = moment_of(str(text), now, name)
    return Chosen(**given)  # type: ignore[arg-type]


def listed_of(query: JobsQuery, now: datetime) -> Listed:
    chosen = msgspec.structs.asdict(chosen_of(query, now))
    return Listed(**chosen, before=query.before, limit=query.limit)


def stretch_of(query: JobsQuery, now: datetime) -> Stretch | None:
    """When they are to have ended; None: whenever, or not at all."""
    since, until = (
        None if text is None else moment_of(text, now, name)
        for name, text in (("ended_since", query.ended_since), ("ended_until", query.ended_until))
    )
    return None if since is None and until is None else Stretch(since=since, until=until)


def moment_of(text: str, now: datetime, name: str) -> datetime:
    """A moment that somebody wrote: exact, or so long ago."""
    try:
        read = datetime.fromisoformat(text)
        return read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    except ValueError:
        try:
            return now - timedelta(seconds=seconds(text, name=name, error=InvalidArguments))
        except (InvalidArguments, OverflowError):
            raise InvalidArguments(
                f"{name} must be a moment such as 2026-11-15T09:30Z, or how long ago, such as 15m or 2h", name
            ) from None


async def understood(call: Call, line: str) -> dict[str, str]:
    """The fields that a line from the search box means: `task:send_email error:"mailbox full"`, an id, or one bare word."""
    found: dict[str, str] = {}
    for name, quoted, plain in _PAIR.findall(line):
        if name in WORDS:
            found[name] = quoted or plain
    rest = _PAIR.sub(lambda pair: "" if pair[1] in WORDS else pair[0], line).strip().strip('"')
    if rest:
        name, value = await _guess(call, rest)
        found.setdefault(name, value)
    return found


async def _guess(call: Call, text: str) -> tuple[str, str]:
    """What a bare word means: whatever has that very name, and else a part of an error."""
    lower = text.lower()
    if is_job_id(lower) or _ID_START.fullmatch(lower):
        return "id", lower
    if lower in STATES:
        return "state", lower
    if text in {task.name for task in (await call.ask(tasks.list_)).items}:
        return "task", text
    if text in {queue.name for queue in (await call.ask(queues.list_queues)).items}:
        return "queue", text
    try:
        keyed = await call.ask(jobs.list_, query=Listed(key=text, limit=1))
    except InvalidArguments:
        return "error", text
    return ("key", text) if keyed.items else ("error", text)
