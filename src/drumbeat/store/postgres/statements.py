"""The names of all statements; a name that is missing here or in its `.sql` file stops the import.

In the files everything lives in the schema `drumbeat`; another namespace is another schema.
"""

import re
from typing import TypeVar

import msgspec

from drumbeat.store import sqlfile
from drumbeat.store.searching import SearchSql

_PACKAGE = "drumbeat.store.postgres.sql"
# `drumbeat.job`, the literal 'drumbeat', and the name in CREATE SCHEMA; not the word inside a longer one.
_SCHEMA = re.compile(r"(?<![\w.])drumbeat(?=\.|;)")
_LITERAL = "'drumbeat'"

S = TypeVar("S", bound=msgspec.Struct)


class JobSql(msgspec.Struct, frozen=True, kw_only=True):
    add: str
    add_one: str
    before_copy: str
    after_copy: str
    known: str
    holders: str
    insert: str
    refuse_held: str
    exchange: str
    claim_waiting: str
    held: str
    held_by: str
    finish: str
    die: str
    give_back: str
    keep_attempts: str
    recorded: str
    count_refused: str
    running: str
    note: str
    lock: str
    live_of_keys: str
    states: str
    request_cancel: str
    run_now: str
    dead_letters: str
    keep_last_attempts: str
    revive: str
    discard: str
    ended: str
    pruned_before: str
    waited_too_long: str
    prune: str
    prune_attempts: str
    keep_pruned_before: str
    pause: str
    resume: str


class InstanceSql(msgspec.Struct, frozen=True, kw_only=True):
    register: str
    beat: str
    leader: str
    give_up_lead: str
    lock: str
    end: str
    tell_end: str
    leave_rooms: str
    forget: str


class InspectSql(msgspec.Struct, frozen=True, kw_only=True):
    live_record: str
    history_record: str
    dead_record: str
    attempts: str
    queues: str
    due: str
    tasks: str
    instances: str
    groups: str
    leader: str
    ahead: str


class LockSql(msgspec.Struct, frozen=True, kw_only=True):
    enter: str
    enter_all: str
    look: str
    leave: str
    release: str
    reasons: str
    mend: str
    page: str
    tickets: str


class ScheduleSql(msgspec.Struct, frozen=True, kw_only=True):
    put_new: str
    put_changed: str
    declare: str
    change: str
    get: str
    page: str
    ahead: str
    due: str
    lock: str
    known: str
    live: str
    waiting: str
    seize: str
    recorded: str
    enqueue: str
    let_go: str
    record: str
    move: str
    standing_still: str
    waiting_for_nobody: str
    rearm: str
    go_on: str
    retire: str
    fires: str
    forget: str
    once: str
    once_state: str
    once_done: str


class RoomSql(msgspec.Struct, frozen=True, kw_only=True):
    send: str
    take: str
    waiting: str
    withdraw: str
    prune: str


class AuditSql(msgspec.Struct, frozen=True, kw_only=True):
    release_key: str
    begin: str
    holder: str
    end: str
    get: str
    page: str
    prune: str


class MalformedSql(msgspec.Struct, frozen=True, kw_only=True):
    jobs: str
    history: str
    letters: str
    schedules: str
    instances: str
    acts: str
    rollups: str


class StatsSql(msgspec.Struct, frozen=True, kw_only=True):
    written: str
    run_ends: str
    put: str
    read: str
    overall: str
    prune: str
    take_gone: str
    lock_folded: str
    folded: str
    keep_folded: str


class FactSql(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    transactions: str
    vacuum: str


class SchemaSql(msgspec.Struct, frozen=True, kw_only=True):
    has_meta: str
    version: str
    keep: str
    lock: str
    server: str
    careful: str
    set: str
    one_snapshot: str
    now: str
    ahead: str
    ensure_day: str
    days: str
    patience: str
    patient_session: str
    usual_session: str
    detach: str
    detach_concurrently: str
    detach_finalize: str
    any_of_day: str
    drop: str
    notify: str


class Statements(msgspec.Struct, frozen=True, kw_only=True):
    """All statements of one namespace."""

    jobs: JobSql
    instances: InstanceSql
    inspect: InspectSql
    search: SearchSql
    locks: LockSql
    schedules: ScheduleSql
    rooms: RoomSql
    audit: AuditSql
    facts: FactSql
    stats: StatsSql
    malformed: MalformedSql
    schema: SchemaSql


_JOBS = sqlfile.load(JobSql, _PACKAGE, "jobs.sql")
_INSTANCES = sqlfile.load(InstanceSql, _PACKAGE, "instances.sql")
_INSPECT = sqlfile.load(InspectSql, _PACKAGE, "inspect.sql")
_SEARCH = sqlfile.load(SearchSql, _PACKAGE, "search.sql")
_LOCKS = sqlfile.load(LockSql, _PACKAGE, "locks.sql")
_SCHEDULES = sqlfile.load(ScheduleSql, _PACKAGE, "schedules.sql")
_ROOMS = sqlfile.load(RoomSql, _PACKAGE, "rooms.sql")
_AUDIT = sqlfile.load(AuditSql, _PACKAGE, "audit.sql")
_STATS = sqlfile.load(StatsSql, _PACKAGE, "stats.sql")
_MALFORMED = sqlfile.load(MalformedSql, _PACKAGE, "malformed.sql")
_FACTS = sqlfile.load(FactSql, _PACKAGE, "facts.sql")
_SCHEMA_SQL = sqlfile.load(SchemaSql, _PACKAGE, "schema.sql")


def statements(namespace: str) -> Statements:
    return Statements(
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
        facts=_in_schema(_FACTS, namespace),
        schema=_in_schema(_SCHEMA_SQL, namespace),
    )


def in_schema(text: str, namespace: str) -> str:
    """The same SQL for the tables of another namespace, which is letters, digits and _ (see `names.check_namespace`)."""
    return _SCHEMA.sub(f'"{namespace}"', text).replace(_LITERAL, f"'{namespace}'")


def of_day(text: str, name: str) -> str:
    """A statement about one partition of history."""
    return text.replace("history_of_day", name)


def _in_schema(statements: S, namespace: str) -> S:
    texts = msgspec.structs.asdict(statements)
    return type(statements)(**{name: in_schema(text, namespace) for name, text in texts.items()})
