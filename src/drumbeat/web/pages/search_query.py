"""The search of the jobs page: from the text of the search box, or the fields of the page, to the filter of the API.

Text is parsed into fields, and the browser redirected: the URL shows what the search means.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

import msgspec

from drumbeat.core.job import JobState, PendingView
from drumbeat.durations import seconds
from drumbeat.errors import InvalidArguments
from drumbeat.ids import is_job_id
from drumbeat.names import short_repr
from drumbeat.web.api import jobs, queues, tasks
from drumbeat.web.api.job_filters import ApiJobFilter, JobCountsQuery, JobListQuery
from drumbeat.web.request import DashboardRequest

STATES = (*PendingView, JobState.RUNNING, JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED)
FILTER_FIELDS = ApiJobFilter.__struct_fields__
ENDED_FIELDS = ("ended_since", "ended_until")
FIELDS = (*FILTER_FIELDS, *ENDED_FIELDS)
SEARCH_HELP = (
    ("state", "dead", "ready, scheduled, retrying, waiting, running, succeeded, dead or cancelled"),
    ("task", "send_email", "the name of a task"),
    ("queue", "mail", "the name of a queue"),
    ("key", "order-7", "the whole key"),
    ("error", '"mailbox full"', "a part of the error's type or message"),
    ("schedule", "nightly", "fires of a schedule"),
    ("instance", "1f0c…", "where it runs or ran last: 16 characters"),
    ("parent", "01a1dfac-…", "enqueued by this job: its whole id"),
    ("workflow", "01a1dfac-…", "part of this workflow: its whole id"),
    ("since", "2h", "created since: a time such as 2026-11-15T09:30Z, or how long ago; likewise until"),
    ("ended_since", "15m", "ended since; likewise ended_until"),
    ("id", "01a1dfac", "prefix of the id, at least 4 characters"),
    ("id_end", "b1d099f427", "suffix of the id, as lists show it"),
)
"""Fields of the search box: name, example, meaning."""
_PAIR = re.compile(r'(?<!\w)(\w++):(?:"([^"]*)"|(\S+))')
_UNKNOWN = re.compile(r"(?:^|\s)([a-z_]+):(?!//)\S")
"""What looks like a field, unlike errors (`ValueError: no`), URLs and times."""
_ID_START = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
_CUT_ID = re.compile(r"(?:…|\.\.\.)([0-9a-f-]{4,36})")
"""As lists show ids."""
_BARE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")
"""The value of an input of type datetime-local: its label says UTC."""
MAX_ID_END = 12
"""The longest suffix of an id without a dash."""


class JobsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the jobs page. Times are ISO 8601 (UTC without an offset), or relative: 15m, 2h."""

    q: str | None = None
    state: str | None = None
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error: str | None = None
    schedule: str | None = None
    instance: str | None = None
    parent: str | None = None
    workflow: str | None = None
    since: str | None = None
    until: str | None = None
    id: str | None = None
    id_end: str | None = None
    ended_since: str | None = None
    ended_until: str | None = None
    """Links of charts use them; counts and bulk acts do not support them."""
    before: str | None = None
    limit: int = 50
    window: str | None = None
    """made or ended: of the form; then `window_since` and `window_until` become the fields of that kind."""
    window_since: str | None = None
    window_until: str | None = None

    @property
    def is_past(self) -> bool:
        """Whether it filters by end time."""
        return self.ended_since is not None or self.ended_until is not None

    def window_fields(self) -> dict[str, str | None]:
        """The fields that the form's window stands for; those of the other kind are cleared."""
        prefix, other = ("ended_", "") if self.window == "ended" else ("", "ended_")
        given = {f"{prefix}since": self.window_since, f"{prefix}until": self.window_until}
        cleared = {f"{other}since": None, f"{other}until": None}
        return cleared | {
            name: None if not value else f"{value}Z" if _BARE_TIME.fullmatch(value) else value
            for name, value in given.items()
        }

    def fields(self) -> dict[str, str]:
        """The filter fields that are set."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


def to_counts_query(query: JobsPageQuery, now: datetime) -> JobCountsQuery:
    """The filter for the API.

    Raises:
        InvalidArguments: an invalid time.
    """
    given: dict[str, object] = {name: value for name, value in query.fields().items() if name in FILTER_FIELDS}
    for name in ("since", "until"):
        if (text := given.get(name)) is not None:
            given[name] = parse_time(str(text), now, name)
    return JobCountsQuery(**given)  # type: ignore[arg-type]


def to_list_query(query: JobsPageQuery, now: datetime) -> JobListQuery:
    chosen = msgspec.structs.asdict(to_counts_query(query, now))
    for name in ENDED_FIELDS:
        if (text := getattr(query, name)) is not None:
            chosen[name] = parse_time(text, now, name)
    return JobListQuery(**chosen, before=query.before, limit=query.limit)


def parse_time(text: str, now: datetime, name: str) -> datetime:
    """A time as written: absolute, or relative to now."""
    try:
        read = datetime.fromisoformat(text)
        return read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    except ValueError:
        try:
            return now - timedelta(seconds=seconds(text, name=name, error=InvalidArguments))
        except (InvalidArguments, OverflowError):
            raise InvalidArguments(
                f"{name} must be a time such as 2026-11-15T09:30Z, or relative, such as 15m or 2h", name
            ) from None


async def parse_search(request: DashboardRequest, line: str) -> dict[str, str]:
    """The fields of a search text: `task:send_email error:"mailbox full"`, an id, or one bare word.

    Raises:
        InvalidArguments: it has an unknown field, and is no name or key.
    """
    found: dict[str, str] = {}
    for name, quoted, plain in _PAIR.findall(line):
        if name in FIELDS:
            found[name] = quoted or plain
    rest = _PAIR.sub(lambda pair: "" if pair[1] in FIELDS else pair[0], line).strip().strip('"')
    if rest:
        name, value = await _guess_field(request, rest)
        if name == "error" and (slip := _UNKNOWN.search(rest)) is not None:
            raise _unknown_field_error(slip[1], rest)
        found.setdefault(name, value)
    return found


def _unknown_field_error(name: str, text: str) -> InvalidArguments:
    near = get_close_matches(name, FIELDS, n=1)
    meant = f"; did you mean {near[0]}?" if near else "."
    return InvalidArguments(
        f"unknown field {short_repr(name)}{meant} Fields are {', '.join(FIELDS)}. "
        f'To search errors for this text, write error:"{text}"',
        "q",
    )


async def _guess_field(request: DashboardRequest, text: str) -> tuple[str, str]:
    """The field of a bare word: of a thing with exactly that name, else a part of an error."""
    lower = text.lower()
    if is_job_id(lower):
        return "id", lower
    if (cut := _CUT_ID.fullmatch(lower)) is not None:
        return await _find_by_end(request, cut[1]) or ("id_end", cut[1])
    if _ID_START.fullmatch(lower):
        begins = await jobs.list_jobs(request, JobListQuery(id=lower, limit=1))
        by_end = None if begins.items or len(lower) > MAX_ID_END else await _find_by_end(request, lower)
        return by_end or ("id", lower)
    if lower in STATES:
        return "state", lower
    if text in {task.name for task in (await tasks.list_tasks(request)).items}:
        return "task", text
    if text in {queue.name for queue in (await queues.list_queues(request)).items}:
        return "queue", text
    try:
        keyed = await jobs.list_jobs(request, JobListQuery(key=text, limit=1))
    except InvalidArguments:
        return "error", text
    return ("key", text) if keyed.items else ("error", text)


async def _find_by_end(request: DashboardRequest, end: str) -> tuple[str, str] | None:
    """The job with this suffix if exactly one of the newest has it, or a search by suffix; None: there is none."""
    found = await jobs.list_jobs(request, JobListQuery(id_end=end, limit=2))
    if len(found.items) == 1:
        return "id", found.items[0].id
    return ("id_end", end) if found.items or found.next is not None else None
