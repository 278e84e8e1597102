"""The names of all statements; a name that is missing here or in its `.sql` file stops the import."""

import msgspec

from drumbeat.store import sqlfile
from drumbeat.store.job_columns import (
    LISTS,
    LIVE,
    LONG_TEXTS,
    NEW,
    ONLY_ENDED,
    ONLY_LIVE,
    default_of,
    literal,
    may_be_null,
)
from drumbeat.store.job_search import SearchSql
from drumbeat.store.sqlfile import Columns, Source

_PACKAGE = "drumbeat.store.sqlite.sql"
ROW_COLUMNS = ("id", "args", "key")
"""What differs between jobs of `insert_similar`; all other fields are its parameters from ?2 on."""
SHARED_COLUMNS = tuple(name for name in NEW if name not in ROW_COLUMNS)


def _insert_source(expressions: dict[str, str]) -> Source:
    """The values of a new live row; expressions: of NewJob's fields."""
    due = f"ifnull({expressions['run_at']}, ?1 + {expressions['delay']})"
    times = {"created_at": "?1", "due_at": due, "run_at": due, "state": "'pending'", "claimed_at": "NULL"}
    defaults = {name: literal(default_of(name)) for name in LIVE if name not in NEW and name not in times}
    return Source(expressions | defaults | times)


def _column(number: int, name: str) -> str:
    return f"nullif(column{number}, -1)" if may_be_null(name) else f"column{number}"


_PREVIEWS = {name: f"substr(job.{name}, 1, :preview)" for name in LONG_TEXTS}
COLUMNS = Columns(
    LISTS,
    {
        "placeholders": Source(dict.fromkeys(NEW, "?")),
        "row": _insert_source({name: _column(number, name) for number, name in enumerate(NEW, start=1)}),
        "shared": _insert_source(
            {name: _column(number, name) for number, name in enumerate(ROW_COLUMNS, start=1)}
            | {name: f"?{number}" for number, name in enumerate(SHARED_COLUMNS, start=2)}
        ),
        "live_record": Source(_PREVIEWS | {"started_at": "job.claimed_at"} | dict.fromkeys(ONLY_ENDED, "NULL"), "job"),
        "ended_record": Source(_PREVIEWS | dict.fromkeys(ONLY_LIVE, "NULL"), "job"),
        "parameters": Source({name: f":{name}" for name in LISTS["definition"]}),
    },
)


class SqliteJobSql(msgspec.Struct, frozen=True, kw_only=True):
    insert: str
    insert_similar: str
    inserted_after: str
    known_ids: str
    unique_holders: str
    move_to_history: str
    move_succeeded: str
    moved_after: str
    delete_finished: str
    delete_jobs: str
    advance_intervals: str
    insert_dead_letters: str
    requeue: str
    insert_attempts: str
    held: str
    held_by: str
    recorded_outcomes: str
    count_refused: str
    pick: str
    pick_unblocked: str
    claim: str
    set_id: str
    unblock: str
    claimed_jobs: str
    next_due: str
    pick_malformed: str
    list_running: str
    save_progress: str
    states: str
    live_ids_of_keys: str
    cancel_pending: str
    request_cancel: str
    run_now: str
    dead_letters: str
    replay: str
    insert_last_attempts: str
    move_dead_to_history: str
    delete_dead: str
    results: str
    pruned_before: str
    expired_waits: str
    prunable_history: str
    delete_attempts: str
    delete_history: str
    set_pruned_before: str
    pause: str
    resume: str


class SqliteInstanceSql(msgspec.Struct, frozen=True, kw_only=True):
    register: str
    heartbeat: str
    heartbeat_reply: str
    reply_own: str
    reply_cancels: str
    reply_waiting: str
    reply_peers: str
    reply_leader: str
    take_leadership: str
    release_leadership: str
    set_ended: str
    set_end_reason: str
    leave_rooms: str
    delete_ended: str
    wake_addresses: str


class SqliteSearchSql(SearchSql, frozen=True, kw_only=True):
    live_ids: str
    history_ids: str
    dead_ids: str


class SqliteInspectSql(msgspec.Struct, frozen=True, kw_only=True):
    live_record: str
    history_record: str
    dead_record: str
    attempts: str
    queues: str
    due: str
    pauses: str
    tasks: str
    instances: str
    groups: str
    leader: str
    ahead: str


class SqliteScheduleSql(msgspec.Struct, frozen=True, kw_only=True):
    put_new: str
    put_changed: str
    declare: str
    unknown_names: str
    change: str
    get: str
    page: str
    due: str
    next_at: str
    shortest_interval: str
    snapshots: str
    recorded_fires: str
    insert_jobs: str
    clear_current: str
    record_fires: str
    advance: str
    stalled: str
    advance_stalled: str
    orphaned: str
    promote_next: str
    start_next: str
    undeclared: str
    retire: str
    fires: str
    prunable_fires: str
    delete_fires: str
    begin_once: str
    once_state: str
    finish_once: str


class SqliteLockSql(msgspec.Struct, frozen=True, kw_only=True):
    boot_of: str
    upsert_lock: str
    set_boot: str
    delete_tickets_of_lock: str
    rebase_grants: str
    delete_expired: str
    delete_malformed_tickets: str
    repair_locks: str
    texts_of_tickets: str
    delete_malformed_ticket: str
    texts_of_locks: str
    clear_texts: str
    delete_malformed_grants: str
    upsert_ticket: str
    renew: str
    locks_of_tickets: str
    lock_state: str
    prune_window: str
    granted_in_window: str
    first_waiting: str
    grant: str
    insert_grant: str
    opens_at: str
    ticket_statuses: str
    ticket_status: str
    granted_tickets: str
    release_reasons: str
    delete_tickets: str
    tickets_to_release: str
    record_release: str
    idle_locks: str
    delete_idle_tickets: str
    delete_idle_grants: str
    delete_idle_locks: str
    page: str
    tickets: str


class SqliteRoomSql(msgspec.Struct, frozen=True, kw_only=True):
    send: str
    wake_addresses: str
    has_any: str
    first_messages: str
    delete_taken: str
    list_untaken: str
    withdraw: str
    prune: str


class SqliteAuditSql(msgspec.Struct, frozen=True, kw_only=True):
    release_key: str
    begin: str
    holder_of_key: str
    end: str
    get: str
    page: str
    page_of_who: str
    page_of_target: str
    prune: str


class SqliteMalformedSql(msgspec.Struct, frozen=True, kw_only=True):
    jobs: str
    history: str
    dead_letters: str
    schedules: str
    instances: str
    audit_entries: str
    tickets: str
    locks: str
    rollups: str
    messages: str
    pauses: str


class SqliteStatsSql(msgspec.Struct, frozen=True, kw_only=True):
    is_in_state: str
    written: str
    run_ends: str
    put: str
    read: str
    overall: str
    prune: str
    foldable: str
    folded: str
    delete_folded: str


class SqliteHealthSql(msgspec.Struct, frozen=True, kw_only=True):
    journal_mode: str


class SqliteSchemaSql(msgspec.Struct, frozen=True, kw_only=True):
    has_meta: str
    version: str
    oldest_code: str
    set_meta: str


JOBS = sqlfile.load(SqliteJobSql, _PACKAGE, "insert.sql", "claim.sql", "completion.sql", "jobs.sql", columns=COLUMNS)
INSTANCES = sqlfile.load(SqliteInstanceSql, _PACKAGE, "instances.sql")
INSPECT = sqlfile.load(SqliteInspectSql, _PACKAGE, "inspect.sql", columns=COLUMNS)
SEARCH = sqlfile.load(SqliteSearchSql, _PACKAGE, "search.sql")
SCHEDULES = sqlfile.load(SqliteScheduleSql, _PACKAGE, "schedules.sql", columns=COLUMNS)
LOCKS = sqlfile.load(SqliteLockSql, _PACKAGE, "locks.sql")
ROOMS = sqlfile.load(SqliteRoomSql, _PACKAGE, "rooms.sql")
AUDIT = sqlfile.load(SqliteAuditSql, _PACKAGE, "audit.sql")
STATS = sqlfile.load(SqliteStatsSql, _PACKAGE, "stats.sql")
MALFORMED = sqlfile.load(SqliteMalformedSql, _PACKAGE, "malformed.sql")
HEALTH = sqlfile.load(SqliteHealthSql, _PACKAGE, "health.sql")
SCHEMA = sqlfile.load(SqliteSchemaSql, _PACKAGE, "schema.sql")
