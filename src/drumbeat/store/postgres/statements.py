"""The names of all statements; a name that is missing here or in its `.sql` file stops the import.

In the files everything lives in the schema `drumbeat`; another namespace is another schema.
"""

import re
from typing import TypeVar

import msgspec

from drumbeat.store import sqlfile
from drumbeat.store.job_columns import (
    ENDED,
    LISTS,
    LONG_TEXTS,
    NEW,
    ONLY_ENDED,
    ONLY_LIVE,
    default_of,
    literal,
    may_be_null,
    neutral_of,
)
from drumbeat.store.job_search import SearchSql
from drumbeat.store.sqlfile import Columns, Source, quote_column

_PACKAGE = "drumbeat.store.postgres.sql"
COLUMN_TYPES: dict[str, str] = dict.fromkeys(NEW, "text") | {
    "priority": "smallint",
    "retries": "integer",
    "crash_limit": "integer",
    "timeout": "bigint",
    "run_at": "bigint",
    "delay": "bigint",
}
"""Of NewJob's fields; a text needs no line."""
SHARED_FIELDS = ("task", "queue", "signature", "priority")
"""Fields of NewJob without a default that jobs of one call mostly share: $2 to $5 of `add`."""


def _new_source(expressions: dict[str, str], now: str) -> Source:
    """The values of a new live row; expressions: of NewJob's fields."""
    due = f"coalesce({expressions['run_at']}, {now} + {expressions['delay']})"
    return Source(expressions | {"created_at": now, "due_at": due, "run_at": due})


def _array_value(name: str) -> str:
    column = f"new.{quote_column(name)}"
    if name in SHARED_FIELDS:
        return f"coalesce({column}, ${SHARED_FIELDS.index(name) + 2})"
    return column if name in ("id", "args") or may_be_null(name) else f"coalesce({column}, {literal(default_of(name))})"


def _or_neutral(name: str) -> str:
    """A damaged row may lack a value that the table of its end requires."""
    column = f"gone.{quote_column(name)}"
    neutral = neutral_of(name)
    return column if name == "id" or neutral is None else f"coalesce({column}, {literal(neutral)})"


_FIRST_ARRAY = len(SHARED_FIELDS) + 2
_ARRAYS = {
    name: f"${number}::text[]::uuid[]" if name == "id" else f"${number}::{COLUMN_TYPES[name]}[]"
    for number, name in enumerate(NEW, start=_FIRST_ARRAY)
}
_ID = {"id": "job.id::text"}
_LIVE_ROW = _ID | {"started_at": "job.claimed_at"} | dict.fromkeys(ONLY_ENDED, "NULL")
_PREVIEWS = {name: f"left(job.{name}, $2) AS {name}" for name in LONG_TEXTS}
COLUMNS = Columns(
    LISTS | {"id_range": ("first", "last")},
    {
        "arrays": Source(_ARRAYS),
        "texts": Source({"id": f"${_FIRST_ARRAY}::text[]"}),
        "numbers": Source(
            {
                name: f"${number}::text::uuid"
                for number, name in enumerate(("first", "last"), start=_FIRST_ARRAY + len(NEW))
            }
        ),
        "new_row": _new_source({name: _array_value(name) for name in NEW}, "(SELECT drumbeat.now_us())"),
        "one": _new_source(
            {name: f"${number}::{COLUMN_TYPES[name]}" for number, name in enumerate(NEW, start=3)}
            | {"id": "$3::text::uuid"},
            "drumbeat.now_us()",
        ),
        "gone_or_neutral": Source({name: _or_neutral(name) for name in ENDED}),
        "nulls": Source(dict.fromkeys(LISTS["claimed"], "NULL")),
        "live_row": Source(_LIVE_ROW, "job"),
        "live_record": Source(_PREVIEWS | _LIVE_ROW, "job"),
        "ended_record": Source(_PREVIEWS | _ID | dict.fromkeys(ONLY_LIVE, "NULL"), "job"),
        "parameters": Source({name: f"${number}" for number, name in enumerate(LISTS["definition"], start=1)}),
    },
)
# `drumbeat.job`, the literal 'drumbeat', and the name in CREATE SCHEMA; not the word inside a longer one.
_SCHEMA = re.compile(r"(?<![\w.])drumbeat(?=\.|;)")
_LITERAL = "'drumbeat'"

S = TypeVar("S", bound=msgspec.Struct)


class PostgresJobSql(msgspec.Struct, frozen=True, kw_only=True):
    add: str
    add_one: str
    before_copy: str
    after_copy: str
    known_ids: str
    key_holders: str
    insert_unknown: str
    raise_if_key_held: str
    report_and_claim: str
    claim_blocked: str
    lock_running: str
    lock_running_of_instance: str
    move_to_history: str
    move_to_dead: str
    requeue: str
    insert_attempts: str
    recorded_outcomes: str
    count_refused: str
    list_running: str
    save_progress: str
    lock_live: str
    lock_live_of_keys: str
    ended_states: str
    request_cancel: str
    run_now: str
    lock_dead_letters: str
    insert_last_attempts: str
    replay: str
    discard: str
    results: str
    pruned_before: str
    lock_expired_waits: str
    prune: str
    prune_attempts: str
    raise_pruned_before: str
    pause: str
    resume: str


class PostgresInstanceSql(msgspec.Struct, frozen=True, kw_only=True):
    register: str
    heartbeat: str
    leader: str
    resign_lead: str
    lock: str
    set_ended: str
    set_end_reason: str
    leave_rooms: str
    forget: str


class PostgresInspectSql(msgspec.Struct, frozen=True, kw_only=True):
    live_record: str
    history_record: str
    dead_record: str
    attempts: str
    queues: str
    due: str
    tasks: str
    instances: str
    dead_groups: str
    leader: str
    count_ahead: str


class PostgresLockSql(msgspec.Struct, frozen=True, kw_only=True):
    acquire: str
    acquire_all: str
    ticket_status: str
    release: str
    force_release: str
    release_reasons: str
    repair_limits: str
    page: str
    tickets: str


class PostgresScheduleSql(msgspec.Struct, frozen=True, kw_only=True):
    put_new: str
    put_changed: str
    declare: str
    change: str
    get: str
    page: str
    next_due: str
    due: str
    lock: str
    existing_names: str
    live_states: str
    list_waiting: str
    lock_jobs: str
    find_fired: str
    enqueue: str
    clear_current: str
    record_fires: str
    move_cursor: str
    find_stalled: str
    find_orphaned_waits: str
    advance_schedule: str
    start_next: str
    retire: str
    fires: str
    delete_fires: str
    begin_once: str
    once_state: str
    finish_once: str


class PostgresRoomSql(msgspec.Struct, frozen=True, kw_only=True):
    send: str
    take: str
    list_untaken: str
    withdraw: str
    prune: str


class PostgresAuditSql(msgspec.Struct, frozen=True, kw_only=True):
    expire_key: str
    begin: str
    key_holder: str
    end: str
    get: str
    page: str
    prune: str


class PostgresMalformedSql(msgspec.Struct, frozen=True, kw_only=True):
    jobs: str
    history: str
    dead_letters: str
    schedules: str
    instances: str
    audit_entries: str
    rollups: str


class PostgresStatsSql(msgspec.Struct, frozen=True, kw_only=True):
    written: str
    run_ends: str
    put: str
    read: str
    overall: str
    prune: str
    delete_gone_totals: str
    lock_folded: str
    folded_totals: str
    upsert_folded: str


class PostgresHealthSql(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    transactions: str
    vacuum: str


class PostgresSchemaSql(msgspec.Struct, frozen=True, kw_only=True):
    has_meta: str
    version: str
    set_version: str
    lock: str
    server: str
    enable_synchronous_commit: str
    apply_settings: str
    use_snapshot: str
    now: str
    days_ahead: str
    ensure_history_day: str
    days: str
    local_timeouts: str
    session_timeouts: str
    reset_timeouts: str
    detach: str
    detach_concurrently: str
    detach_finalize: str
    day_has_rows: str
    drop_day: str
    notify: str


class PostgresStatements(msgspec.Struct, frozen=True, kw_only=True):
    """All statements of one namespace."""

    jobs: PostgresJobSql
    instances: PostgresInstanceSql
    inspect: PostgresInspectSql
    search: SearchSql
    locks: PostgresLockSql
    schedules: PostgresScheduleSql
    rooms: PostgresRoomSql
    audit: PostgresAuditSql
    health: PostgresHealthSql
    stats: PostgresStatsSql
    malformed: PostgresMalformedSql
    schema: PostgresSchemaSql


_JOBS = sqlfile.load(PostgresJobSql, _PACKAGE, "insert.sql", "claim.sql", "completion.sql", "jobs.sql", columns=COLUMNS)
_INSTANCES = sqlfile.load(PostgresInstanceSql, _PACKAGE, "instances.sql")
_INSPECT = sqlfile.load(PostgresInspectSql, _PACKAGE, "inspect.sql", columns=COLUMNS)
_SEARCH = sqlfile.load(SearchSql, _PACKAGE, "search.sql")
_LOCKS = sqlfile.load(PostgresLockSql, _PACKAGE, "locks.sql")
_SCHEDULES = sqlfile.load(PostgresScheduleSql, _PACKAGE, "schedules.sql", columns=COLUMNS)
_ROOMS = sqlfile.load(PostgresRoomSql, _PACKAGE, "rooms.sql")
_AUDIT = sqlfile.load(PostgresAuditSql, _PACKAGE, "audit.sql")
_STATS = sqlfile.load(PostgresStatsSql, _PACKAGE, "stats.sql")
_MALFORMED = sqlfile.load(PostgresMalformedSql, _PACKAGE, "malformed.sql")
_HEALTH = sqlfile.load(PostgresHealthSql, _PACKAGE, "health.sql")
_SCHEMA_SQL = sqlfile.load(PostgresSchemaSql, _PACKAGE, "schema.sql")


def statements(namespace: str) -> PostgresStatements:
    return PostgresStatements(
        jobs=_in_schema(_JOBS, namespace),
        instances=_in_schema(_INSTANCES, namespace),
        inspect=_in_schema(_INSPECT, namespace),
        search=_in_schema(_SEARCH, namespace),
        locks=_in_schema(_LOCKS, namespace),
        schedules=_in_schema(_SCHEDULES, namespace),
        rooms=_in_schema(_ROOMS, namespace),
        audit=_in_schema(_AUDIT, namespace),
        stats=_in_schema(_STATS, namespace),
        malformed=_in_schema(_MALFORMED, namespace),
        health=_in_schema(_HEALTH, namespace),
        schema=_in_schema(_SCHEMA_SQL, namespace),
    )


def in_schema(text: str, namespace: str) -> str:
    """The same SQL for the tables of another namespace, which is letters, digits and _ (see `names.check_namespace`)."""
    return _SCHEMA.sub(f'"{namespace}"', text).replace(_LITERAL, f"'{namespace}'")


def for_partition(text: str, name: str) -> str:
    """A statement about one partition of history."""
    return text.replace("history_of_day", name)


def _in_schema(statements: S, namespace: str) -> S:
    texts = msgspec.structs.asdict(statements)
    return type(statements)(**{name: in_schema(text, namespace) for name, text in texts.items()})
