"""The names of all statements; a name that is missing here or in its `.sql` file stops the import."""

import msgspec

from drumbeat.store import sqlfile
from drumbeat.store.job_search import SearchSql

_PACKAGE = "drumbeat.store.sqlite.sql"


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
    running: str
    note: str
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
    ended: str
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
    beat: str
    heartbeat_reply: str
    reply_own: str
    reply_cancels: str
    reply_waiting: str
    reply_peers: str
    reply_leader: str
    lead: str
    release_leadership: str
    end: str
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
    shortest: str
    snapshots: str
    recorded_fires: str
    insert_jobs: str
    clear_current: str
    record: str
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
    once: str
    once_state: str
    once_done: str


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
    holding: str
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
    waiting: str
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
    letters: str
    schedules: str
    instances: str
    acts: str
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


JOBS = sqlfile.load(SqliteJobSql, _PACKAGE, "jobs.sql")
INSTANCES = sqlfile.load(SqliteInstanceSql, _PACKAGE, "instances.sql")
INSPECT = sqlfile.load(SqliteInspectSql, _PACKAGE, "inspect.sql")
SEARCH = sqlfile.load(SqliteSearchSql, _PACKAGE, "search.sql")
SCHEDULES = sqlfile.load(SqliteScheduleSql, _PACKAGE, "schedules.sql")
LOCKS = sqlfile.load(SqliteLockSql, _PACKAGE, "locks.sql")
ROOMS = sqlfile.load(SqliteRoomSql, _PACKAGE, "rooms.sql")
AUDIT = sqlfile.load(SqliteAuditSql, _PACKAGE, "audit.sql")
STATS = sqlfile.load(SqliteStatsSql, _PACKAGE, "stats.sql")
MALFORMED = sqlfile.load(SqliteMalformedSql, _PACKAGE, "malformed.sql")
HEALTH = sqlfile.load(SqliteHealthSql, _PACKAGE, "health.sql")
SCHEMA = sqlfile.load(SqliteSchemaSql, _PACKAGE, "schema.sql")
