"""Bugs that the suite once did not notice, each with the tests that must notice it now.

`python -m tests.mutation --known` plants one after the other and runs its tests: every one of them must fail. An edit whose
text is no longer in its file fails `make test`: it must follow the code.
"""

from tests.mutation.nearest import Nearest
from tests.planting import PlantedBug

SQLITE, POSTGRES, REDIS = "sqlite", "postgres", "valkey"
ALL = (SQLITE, POSTGRES, REDIS)


class KnownBug(PlantedBug, frozen=True, kw_only=True):
    engines: tuple[str, ...]
    tests: tuple[str, ...]
    """Ids of pytest, without parameters."""

    @property
    def nearest(self) -> Nearest:
        return Nearest(tests=self.tests, engines=frozenset(self.engines))


_OUTCOMES = "tests/contract/test_outcomes.py::"
_LATE_SUCCESS = (_OUTCOMES + "test_late_successes_of_older_claims_of_the_same_instance_change_nothing",)
_RACES = "tests/engines/postgres/test_claim_races.py::"
_DEATH_AFTER_CLAIM = _RACES + "test_what_was_being_claimed_when_its_instance_was_declared_dead_is_released"
_CLAIM_AFTER_DEATH = _RACES + "test_an_instance_that_is_being_declared_dead_claims_nothing"
_CANCEL_AFTER_CLAIM = _RACES + "test_a_cancellation_of_what_is_being_claimed_is_requested_and_the_job_stays"
_CLAIM_AFTER_CANCEL = _RACES + "test_what_is_being_cancelled_is_not_claimed"
_CLAIM_AFTER_CLAIM = _RACES + "test_what_is_being_claimed_is_left_to_who_claims_it"
_WRITER = "tests/engines/sqlite/test_writer.py::"
_GROUP_ON_DISK = _WRITER + "test_an_enqueue_waits_for_the_disk_also_in_a_group_with_those_who_need_not"
_ALONE_ON_DISK = _WRITER + "test_an_enqueue_is_answered_when_it_is_on_disk_and_a_claim_need_not_wait_for_that"
_STEPS = "tests/contract/test_clock_steps.py::"
_JOB_TOKENS = (
    _STEPS + "test_the_token_of_a_job_grows_at_each_claim",
    _STEPS + "test_the_token_of_a_dead_letter_grows_when_it_is_replayed",
)
_LOCK_TOKENS = (_STEPS + "test_the_token_of_a_lock_grows_with_each_ticket",)
_TRUST = "tests/locks/test_lease_trust.py::"
_LATE_GRANT = _TRUST + "test_a_grant_that_is_answered_late_is_trusted_from_the_question"
_LATE_RENEWAL = _TRUST + "test_a_renewal_that_is_answered_late_is_trusted_from_the_question"
_PARKED = "tests/engines/redis/test_parked_claims.py::"
_TWO_FIRES = "test_a_second_job_for_a_fire_time_is_refused_by_the_table_itself"
_TWO_SKIPS = "tests/contract/test_firing.py::test_a_moment_that_is_skipped_twice_has_one_record_the_first"
_BACKFILL = "tests/contract/test_firing.py::test_a_backfill_leaves_the_cursor_and_passes_over_what_was_fired"
_WORKER_TIMEOUT = "tests/worker/test_cancellation.py::test_the_time_out_of_a_job_counts_and_not_that_of_its_task"
_KEPT_ATTEMPTS = ("tests/contract/test_history.py::test_attempts_of_dead_letters_and_of_live_jobs_are_kept",)
_FAILED_BEAT = (
    "tests/worker/test_faults.py::test_after_a_heartbeat_of_its_own_that_failed_a_worker_declares_nobody_dead"
)

FENCE_BUGS = (
    KnownBug(
        name="a late success with a result is not fenced by its token (SQLite)",
        engines=(SQLITE,),
        tests=_LATE_SUCCESS,
        file="store/sqlite/sql/completion.sql",
        before="  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended\n-- include: _join_running\n;",
        after="  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended\n CROSS JOIN drumbeat_job AS job\n"
        " WHERE typeof(ended.column1) = 'text' AND job.id = ended.column1 AND job.state = 'running' AND job.instance = ?1\n"
        "    ON CONFLICT (id) DO NOTHING;",
    ),
    KnownBug(
        name="a late success is not fenced by its token (PostgreSQL)",
        engines=(POSTGRES,),
        tests=_LATE_SUCCESS,
        file="store/postgres/sql/claim.sql",
        before="WHEN (id, token) IN (SELECT ended.id, ended.token FROM ended) THEN",
        after="WHEN id IN (SELECT ended.id FROM ended) THEN",
    ),
    KnownBug(
        name="a late success is not fenced by its token, one at a time (Redis)",
        engines=(REDIS,),
        tests=_LATE_SUCCESS,
        file="store/redis/lua/report_and_claim.lua",
        before="    current[ids[i]] = is_current(score, token)\n",
        after="    current[ids[i]] = score\n",
    ),
    KnownBug(
        name="a late success is not fenced by its token, many at a time (Redis)",
        engines=(REDIS,),
        tests=_LATE_SUCCESS,
        file="store/redis/lua/report_and_claim.lua",
        before="safe_read('ZRANGEBYSCORE', held, token, token)",
        after="safe_read('ZRANGEBYSCORE', held, token, '+inf')",
    ),
)

RACE_BUGS = (
    KnownBug(
        name="a claim does not lock its instance",
        engines=(POSTGRES,),
        tests=(_DEATH_AFTER_CLAIM, _CLAIM_AFTER_DEATH),
        file="store/postgres/sql/claim.sql",
        before="          AND EXISTS (SELECT FROM shared UNION ALL SELECT FROM rest)\n          FOR KEY SHARE),",
        after="          AND EXISTS (SELECT FROM shared UNION ALL SELECT FROM rest)),",
    ),
    KnownBug(
        name="a claim of blocked jobs does not lock its instance",
        engines=(POSTGRES,),
        tests=(_DEATH_AFTER_CLAIM, _CLAIM_AFTER_DEATH),
        file="store/postgres/sql/claim.sql",
        before="          AND EXISTS (SELECT FROM picked)\n          FOR KEY SHARE)",
        after="          AND EXISTS (SELECT FROM picked))",
    ),
    KnownBug(
        name="a claim does not ask whether its instance lives",
        engines=(POSTGRES,),
        tests=(_CLAIM_AFTER_DEATH,),
        file="store/postgres/sql/claim.sql",
        before="          AND state = 'alive'\n          AND EXISTS (SELECT FROM shared UNION ALL SELECT FROM rest)",
        after="          AND EXISTS (SELECT FROM shared UNION ALL SELECT FROM rest)",
    ),
    KnownBug(
        name="a declared death excludes no claims",
        engines=(POSTGRES,),
        tests=(_DEATH_AFTER_CLAIM,),
        file="store/postgres/sql/instances.sql",
        before="   AND ($2::bigint IS NULL OR beat = $2)\n   FOR UPDATE;",
        after="   AND ($2::bigint IS NULL OR beat = $2)\n   FOR NO KEY UPDATE;",
    ),
    KnownBug(
        name="a declared death releases what it saw before its lock",
        engines=(POSTGRES,),
        tests=(_DEATH_AFTER_CLAIM,),
        file="store/postgres/instances.py",
        before="        await session.fetch(self._sql.jobs.lock_running_of_instance, id)\n"
        "        if await session.fetchval(self._sql.instances.lock, id, beat) is None:\n"
        "            return None\n"
        "        return [rows.held_job(row) for row in await session.fetch(self._sql.jobs.lock_running_of_instance, id)]\n",
        after="        seen = await session.fetch(self._sql.jobs.lock_running_of_instance, id)\n"
        "        if await session.fetchval(self._sql.instances.lock, id, beat) is None:\n"
        "            return None\n"
        "        return [rows.held_job(row) for row in seen]\n",
    ),
    KnownBug(
        name="a cancellation does not lock its jobs",
        engines=(POSTGRES,),
        tests=(_CANCEL_AFTER_CLAIM,),
        file="store/postgres/sql/jobs.sql",
        before=" WHERE id = ANY ($1::text[]::uuid[])\n ORDER BY job.id\n   FOR UPDATE;",
        after=" WHERE id = ANY ($1::text[]::uuid[])\n ORDER BY job.id;",
    ),
    KnownBug(
        name="a cancellation by keys does not lock its jobs",
        engines=(POSTGRES,),
        tests=(_CANCEL_AFTER_CLAIM,),
        file="store/postgres/sql/jobs.sql",
        before="   AND key IS NOT NULL\n ORDER BY job.id\n   FOR UPDATE;",
        after="   AND key IS NOT NULL\n ORDER BY job.id;",
    ),
    KnownBug(
        name="a cancellation takes a running job for a pending one",
        engines=(POSTGRES,),
        tests=(_CANCEL_AFTER_CLAIM,),
        file="store/postgres/jobs.py",
        before='for id, state in found.items() if state != "running"]',
        after="for id, state in found.items()]",
    ),
    KnownBug(
        name="a claim does not lock what it picks",
        engines=(POSTGRES,),
        tests=(_CLAIM_AFTER_CANCEL, _CLAIM_AFTER_CLAIM),
        file="store/postgres/sql/claim.sql",
        before="                      LIMIT $10\n                        FOR UPDATE SKIP LOCKED) AS job",
        after="                      LIMIT $10) AS job",
    ),
    KnownBug(
        name="a claim of blocked jobs does not lock what it picks",
        engines=(POSTGRES,),
        tests=(_CLAIM_AFTER_CLAIM,),
        file="store/postgres/sql/claim.sql",
        before="               LIMIT $4\n                 FOR UPDATE SKIP LOCKED) AS due",
        after="               LIMIT $4) AS due",
    ),
)

DISK_BUGS = (
    KnownBug(
        name="a group is answered before it is on disk if one of it need not be",
        engines=(SQLITE,),
        tests=(_GROUP_ON_DISK,),
        file="store/sqlite/writer.py",
        before="durable = any(request.durable for request in wanted)",
        after="durable = all(request.durable for request in wanted)",
    ),
    KnownBug(
        name="every group is answered before it is on disk",
        engines=(SQLITE,),
        tests=(_GROUP_ON_DISK, _ALONE_ON_DISK),
        file="store/sqlite/writer.py",
        before="        if not durable:\n            return results\n",
        after="        if durable or not durable:\n            return results\n",
    ),
    KnownBug(
        name="what waits for the disk is answered before the sync",
        engines=(SQLITE,),
        tests=(_GROUP_ON_DISK, _ALONE_ON_DISK),
        file="store/sqlite/fsync_thread.py",
        before="        self._waiting.put(results)\n",
        after="        self._on_synced(list(results), None)\n        self._waiting.put([])\n",
    ),
)

TOKEN_BUGS = (
    KnownBug(
        name="the token of a job is the time (SQLite)",
        engines=(SQLITE,),
        tests=(*_JOB_TOKENS, _WRITER + "test_tokens_grow_when_the_clock_steps_back"),
        file="store/sqlite/sql/claim.sql",
        before="CASE WHEN typeof(token) = 'integer' AND token < 1e18 THEN max(token + 1, :lowest_token)"
        " ELSE :lowest_token END",
        after=":lowest_token",
    ),
    KnownBug(
        name="the token of a job is the time (PostgreSQL)",
        engines=(POSTGRES,),
        tests=_JOB_TOKENS,
        file="store/postgres/sql/claim.sql",
        before="greatest(least(token, 1000000000000000000) + 1, {{here}})",
        after="{{here}}",
    ),
    KnownBug(
        name="the token of a job is the time (Redis)",
        engines=(REDIS,),
        tests=_JOB_TOKENS,
        file="store/redis/lua/_assign_jobs.lua",
        before="last < now and now_text or us(last + 1)",
        after="now_text",
    ),
    KnownBug(
        name="the token of a job is told as the time (Redis)",
        engines=(REDIS,),
        tests=_JOB_TOKENS,
        file="store/redis/rows.py",
        before="    token = max(now, live.token + 1)\n",
        after="    token = now\n",
    ),
    KnownBug(
        name="the token of a lock is the time (SQLite)",
        engines=(SQLITE,),
        tests=(*_LOCK_TOKENS, "tests/engines/sqlite/test_locks.py::test_tokens_grow_when_the_wall_clock_is_set_back"),
        file="store/sqlite/sql/locks.sql",
        before="last_number = max(last_number + 1, excluded.last_number)",
        after="last_number = excluded.last_number",
    ),
    KnownBug(
        name="the token of a lock is the time (PostgreSQL)",
        engines=(POSTGRES,),
        tests=_LOCK_TOKENS,
        file="store/postgres/migrations/0001_schema/06_lock_calls.sql",
        before="greatest(known.last_number + 1, drumbeat.clock_us())",
        after="drumbeat.clock_us()",
    ),
    KnownBug(
        name="the token of a lock is the time (Redis)",
        engines=(REDIS,),
        tests=_LOCK_TOKENS,
        file="store/redis/lua/acquire_lock.lua",
        before="us(math.max(last + 1, now))",
        after="now_text",
    ),
)

LEASE_BUGS = (
    KnownBug(
        name="a lease is reckoned from the answer",
        engines=(SQLITE,),
        tests=(_LATE_GRANT, _LATE_RENEWAL),
        file="locks/ticket.py",
        before="        self._trusted_until = asked_at + self.lease",
        after="        self._trusted_until = self._clock.monotonic() + self.lease",
    ),
    KnownBug(
        name="the time of a grant is taken at its answer",
        engines=(SQLITE,),
        tests=(_LATE_GRANT,),
        file="locks/lock_client.py",
        before="            self.keeper.record_acquire(ticket, status, asked_at)\n",
        after="            self.keeper.record_acquire(ticket, status, self.clock.monotonic())\n",
    ),
    KnownBug(
        name="the time of a renewal is taken at its answer",
        engines=(SQLITE,),
        tests=(_LATE_RENEWAL,),
        file="locks/lease_renewer.py",
        before="                for ticket in self._table.apply_statuses(statuses, asked_at, renewed=renew):\n",
        after="                for ticket in self._table.apply_statuses(statuses, self._clock.monotonic(), renewed=renew):\n",
    ),
)

FIRE_BUGS = (
    KnownBug(
        name="fires have no unique constraint (SQLite)",
        engines=(SQLITE,),
        tests=(_TWO_SKIPS, f"tests/engines/sqlite/test_schedules.py::{_TWO_FIRES}"),
        file="store/sqlite/migrations/0001_schema/02_schedules.sql",
        before="    recorded_at INTEGER NOT NULL,\n    PRIMARY KEY (schedule, at, skipped)\n) WITHOUT ROWID;",
        after="    recorded_at INTEGER NOT NULL\n);",
    ),
    KnownBug(
        name="fires have no unique constraint (PostgreSQL)",
        engines=(POSTGRES,),
        tests=(_TWO_SKIPS, f"tests/engines/postgres/test_schedules.py::{_TWO_FIRES}"),
        file="store/postgres/migrations/0001_schema/03_schedules.sql",
        before="    recorded_at bigint NOT NULL,\n    CONSTRAINT fire_pkey PRIMARY KEY (schedule, at, skipped)\n);",
        after="    recorded_at bigint NOT NULL\n);",
    ),
    KnownBug(
        name="a fire time is fired again (Redis)",
        engines=(REDIS,),
        tests=(_BACKFILL,),
        file="store/redis/lua/fire_schedules.lua",
        before="if not seen[planned.at] and not safe_read('ZSCORE', P .. 'fires:' .. schedule.name, 'f' .. planned.at) then",
        after="if not seen[planned.at] then",
    ),
    KnownBug(
        name="the record of a fire is written over (Redis)",
        engines=(REDIS,),
        tests=(_TWO_SKIPS,),
        file="store/redis/lua/_schedule.lua",
        before="  if safe_write('ZADD', P .. 'fires:' .. name, 'NX', at, member) == 0 then\n    return\n  end\n",
        after="  safe_write('ZADD', P .. 'fires:' .. name, 'NX', at, member)\n",
    ),
)

ATTEMPT_BUGS = (
    KnownBug(
        name="attempts of dead letters are pruned (SQLite)",
        engines=(SQLITE,),
        tests=_KEPT_ATTEMPTS,
        file="store/sqlite/sql/jobs.sql",
        before="DELETE FROM drumbeat_attempt\n WHERE id IN (SELECT history.id\n",
        after="DELETE FROM drumbeat_attempt\n WHERE id IN (SELECT id FROM drumbeat_dead)\n    OR id IN (SELECT history.id\n",
    ),
    KnownBug(
        name="attempts of dead letters are pruned (PostgreSQL)",
        engines=(POSTGRES,),
        tests=_KEPT_ATTEMPTS,
        file="store/postgres/sql/jobs.sql",
        before="          AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = attempt.id)\n",
        after="",
    ),
    KnownBug(
        name="attempts of live jobs are pruned (PostgreSQL)",
        engines=(POSTGRES,),
        tests=_KEPT_ATTEMPTS,
        file="store/postgres/sql/jobs.sql",
        before="          AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = attempt.id)\n",
        after="",
    ),
    KnownBug(
        name="attempts of dead letters are pruned (Redis)",
        engines=(REDIS,),
        tests=_KEPT_ATTEMPTS,
        file="store/redis/lua/prune_jobs.lua",
        before="for first = 1, #tries, CHUNK do\n",
        after="for _, id in ipairs(call('ZRANGE', P .. 'dead', 0, -1)) do\n  append(tries, P .. 'attempts:' .. id)\nend\n"
        "for first = 1, #tries, CHUNK do\n",
    ),
)

WORKER_BUGS = (
    KnownBug(
        name="a mistake of the inserter leaves its callers waiting",
        engines=(POSTGRES,),
        tests=(
            "tests/engines/postgres/test_bulk.py"
            "::test_an_error_of_our_own_code_reaches_all_who_wait_and_the_next_are_stored",
        ),
        file="store/postgres/insert.py",
        before="                except Exception as error:  # a mistake of ours: the callers must not wait for ever\n"
        "                    _fail(group, error)\n",
        after="",
    ),
    KnownBug(
        name="claims are released at the first comparison",
        engines=(SQLITE,),
        tests=(
            "tests/worker/test_faults.py"
            "::test_claims_that_the_worker_does_not_know_are_released_at_the_second_comparison",
        ),
        file="worker/store_loop.py",
        before="        lost = missing & self._unknown_claims\n",
        after="        lost = missing\n",
    ),
    KnownBug(
        name="a parked claim gets a job of the future",
        engines=(REDIS,),
        tests=(
            _PARKED + "test_a_job_that_is_due_soon_is_not_given_early",
            _PARKED + "test_a_job_of_the_future_is_a_hint",
        ),
        file="store/redis/lua/_handoff.lua",
        before="is_ready[template] = not template.lane and template.due <= now and not",
        after="is_ready[template] = not template.lane and not",
    ),
    KnownBug(
        name="a parked claim gets a job a second early",
        engines=(REDIS,),
        tests=(_PARKED + "test_a_job_that_is_due_soon_is_not_given_early",),
        file="store/redis/lua/_handoff.lua",
        before="template.due <= now and",
        after="template.due <= now + 1000000 and",
    ),
    KnownBug(
        name="the time-out of a task counts before that of its job (on the loop)",
        engines=(SQLITE,),
        tests=(_WORKER_TIMEOUT,),
        file="worker/runner.py",
        before="limit = job.timeout or spec.timeout_us",
        after="limit = spec.timeout_us or job.timeout",
    ),
    KnownBug(
        name="the time-out of a task counts before that of its job (in threads, children and batches)",
        engines=(SQLITE,),
        tests=(_WORKER_TIMEOUT,),
        file="worker/task_spec.py",
        before="(limit := job.timeout or self.timeout_us)",
        after="(limit := self.timeout_us or job.timeout)",
    ),
    KnownBug(
        name="a time-out is told as that of the task",
        engines=(SQLITE,),
        tests=(_WORKER_TIMEOUT,),
        file="worker/runner.py",
        before="results.from_timeout(run.jobs[0].timeout or spec.timeout_us or 0)",
        after="results.from_timeout(spec.timeout_us or run.jobs[0].timeout or 0)",
    ),
    KnownBug(
        name="a cancelled job in the buffer runs",
        engines=(SQLITE,),
        tests=(
            "tests/worker/test_cancellation.py::test_a_job_that_is_cancelled_while_it_waits_in_the_worker_does_not_run",
        ),
        file="worker/heartbeat_listener.py",
        before="        for job in self._buffer.remove(requests.keys()):\n"
        "            self._reporter.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.CANCELLED))\n",
        after="",
    ),
    KnownBug(
        name="an observer remembers what it saw before its failed heartbeat",
        engines=(SQLITE,),
        tests=(_FAILED_BEAT, "tests/unit/test_observer.py::test_after_a_failed_beat_an_observer_counts_anew"),
        file="core/observer.py",
        before="        self._seen.clear()\n        self._observed_at = None\n",
        after="",
    ),
    KnownBug(
        name="an observer is not told of its failed heartbeat",
        engines=(SQLITE,),
        tests=(_FAILED_BEAT,),
        file="heartbeat.py",
        before="        self._observer.reset()\n        if not self._rule.record_failure():\n",
        after="        if not self._rule.record_failure():\n",
    ),
)

SECURITY_BUGS = (
    KnownBug(
        name="the dashboard shows secrets of results",
        engines=(SQLITE,),
        tests=("tests/web/test_previews.py::test_nothing_that_is_hidden_is_on_any_page_or_in_any_list",),
        file="web/api/records.py",
        before="        if (text := texts[name]) is not None:\n",
        after='        if name != "result" and (text := texts[name]) is not None:\n',
    ),
    KnownBug(
        name="the command shows secrets of results",
        engines=(SQLITE,),
        tests=("tests/cli/test_resources.py::test_the_screen_hides_secrets_of_results_too",),
        file="cli/job_view.py",
        before='blocks["Result"] = formatting.format_json(job.result)',
        after='blocks["Result"] = formatting.escape_lines(job.result)',
    ),
    KnownBug(
        name="the command shows passwords of results that could not be kept",
        engines=(SQLITE,),
        tests=("tests/cli/test_resources.py::test_the_screen_hides_secrets_of_results_too",),
        file="cli/job_view.py",
        before='mask_urls(job.result_error or "")',
        after="job.result_error",
    ),
    KnownBug(
        name="a login never ends",
        engines=(SQLITE,),
        tests=("tests/web/test_access.py::test_a_session_ends_by_itself_after_twelve_hours",),
        file="web/access.py",
        before="return found[0] if found is not None and self._clock.monotonic() < found[1] else None",
        after="return found[0] if found is not None else None",
    ),
    KnownBug(
        name="an event stream never ends",
        engines=(SQLITE,),
        tests=("tests/web/test_events.py::test_a_stream_ends_after_its_time_so_that_revoked_rights_take_effect",),
        file="web/event_stream.py",
        before=" and not _is_server_stopping() and clock.monotonic() < end:",
        after=" and not _is_server_stopping():",
    ),
)

KNOWN_BUGS = (
    *FENCE_BUGS,
    *RACE_BUGS,
    *DISK_BUGS,
    *TOKEN_BUGS,
    *LEASE_BUGS,
    *FIRE_BUGS,
    *ATTEMPT_BUGS,
    *WORKER_BUGS,
    *SECURITY_BUGS,
)
