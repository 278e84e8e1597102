"""Bugs that the simulation must find: each a small edit of the source, as a tired colleague could make it.

A process that finds the planted copy of the source first runs the seeds. An edit whose text is no longer in the file fails the
test: it must follow the code.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planting import ROOT, PlantedBug, plant

MAX_SEEDS = 500


def find(bug: PlantedBug, *, seeds: int = MAX_SEEDS) -> tuple[int | None, list[str]]:
    """The first seed that finds the bug, and the promises that it breaks; None: no seed did."""
    with tempfile.TemporaryDirectory(prefix="drumbeat-planted-") as folder:
        path = os.pathsep.join([str(plant(bug, Path(folder))), str(ROOT)])
        command = [sys.executable, "-m", "tests.simulation", "--seeds", str(seeds), "--until-found"]
        command += ["--promise", bug.promise] if bug.promise else []
        environment = {**os.environ, "PYTHONPATH": path}
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if not found.stdout:
        raise RuntimeError(f"{bug.name}: the search failed: {found.stderr[-2000:]}")
    answer = json.loads(found.stdout)
    return answer["seed"], answer["broken"]


BUGS = (
    PlantedBug(
        name="an outcome is accepted whatever its token",
        file="store/sqlite/sql/completion.sql",
        before="   AND job.token = ended.column2\n",
        after="",
    ),
    PlantedBug(
        name="an outcome is accepted from any instance",
        file="store/sqlite/sql/completion.sql",
        before="   AND job.instance = ?1\n   AND job.token = ended.column2\n",
        after="",
    ),
    PlantedBug(
        name="nobody is declared dead",
        file="heartbeat.py",
        before="        for peer in dead:\n",
        after="        for peer in dead[:0]:\n",
    ),
    PlantedBug(
        name="claims whose answer was lost are never released",
        file="worker/store_loop.py",
        before="        if self._must_reconcile and now",
        after="        if False and now",
    ),
    PlantedBug(
        name="an observer judges after its own failed heartbeat",
        file="core/observer.py",
        before="        self._seen.clear()\n        self._observed_at = None\n",
        after="",
    ),
    PlantedBug(
        name="a schedule fires whatever its cursor is",
        file="core/overlap.py",
        before="(snapshot.revision, snapshot.cursor) == (request.revision, request.expected_cursor)",
        after="snapshot.revision == request.revision",
    ),
    PlantedBug(
        name="a unique key is not looked up",
        file="core/uniqueness.py",
        before="holder = job.id if job.id in seen else keys.find_holder(job)",
        after="holder = job.id if job.id in seen else None",
    ),
    PlantedBug(
        name="a cancelled job stays in its queue",
        file="store/sqlite/jobs.py",
        before='        self._completion.delete_ended(write, self._sql.delete_jobs, {"ids": ids})\n',
        after="",
    ),
    PlantedBug(
        name="a lock's lease is reckoned from the answer",
        file="locks/ticket.py",
        before="        self._trusted_until = asked_at + self.lease",
        after="        self._trusted_until = self._clock.monotonic() + self.lease",
    ),
    PlantedBug(
        name="a lock is granted beside its holder",
        file="store/sqlite/locks.py",
        before="if (free := count_free(limit, len(lanes), in_window)) > 0:",
        after="if (free := count_free(limit, 0, in_window)) > 0:",
    ),
    PlantedBug(
        name="the token of a job does not grow",
        file="store/sqlite/sql/claim.sql",
        before="max(token + 1, :lowest_token) ELSE :lowest_token END",
        after="max(token, 1) ELSE 1 END",
    ),
    PlantedBug(
        name="a job is claimed before it is due",
        file="store/sqlite/sql/claim.sql",
        before="           AND job.run_at <= :now\n           AND job.state = 'pending'\n",
        after="           AND job.state = 'pending'\n",
    ),
    PlantedBug(
        name="an answer before the sync",
        file="store/sqlite/writer.py",
        before="        if not durable:\n            return results\n",
        after="        if durable or not durable:\n            return results\n",
    ),
    PlantedBug(
        name="a result of another job in the group",
        file="store/sqlite/completion.py",
        before="results = (_or_null(each.result), _or_null(each.result_error))",
        after="results = (_or_null(successes[0].result), _or_null(each.result_error))",
    ),
    PlantedBug(
        name="a release is charged as a failure",
        file="core/transitions.py",
        before="        failures=job.failures + (kind is OutcomeKind.RETRY),",
        after="        failures=job.failures + (kind in (OutcomeKind.RETRY, OutcomeKind.RELEASED)),",
    ),
    PlantedBug(
        name="a worker that was declared dead claims under its old name",
        file="store/sqlite/sql/claim.sql",
        before="           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')\n"
        "         ORDER BY level.priority, job.run_at, job.id\n",
        after="         ORDER BY level.priority, job.run_at, job.id\n",
    ),
    PlantedBug(
        name="the jobs of the dead stay with them",
        file="store/sqlite/instances.py",
        before="            report = self._release_jobs_of_dead(write, id, marked, reason)\n",
        after="            report = DeadInstanceReport(declared=True)\n",
    ),
    PlantedBug(
        name="a batch is inserted up to its first known id",
        file="store/sqlite/insert.py",
        before="        if any(map(_UNIQUE, jobs)):\n            answers = self._add_unique(write, batch)\n",
        after="        if len(jobs) > 2 and write.now % 2:\n            jobs = jobs[:-1]\n"
        "        if any(map(_UNIQUE, jobs)):\n            answers = self._add_unique(write, batch)\n",
    ),
    PlantedBug(
        name="the record of a fire is not written",
        file="store/sqlite/schedules.py",
        before="        if batch.records:\n",
        after="        if batch.records and write.now % 3:\n",
    ),
    PlantedBug(
        name="outcomes are forgotten when their report fails",
        file="worker/store_loop.py",
        before="            self._reporter.restore(outcomes)\n            await",
        after="            await",
    ),
    PlantedBug(
        name="a message is delivered twice",
        file="store/sqlite/rooms.py",
        before="        return sorted(taken, key=lambda message: message.id)\n",
        after="        return sorted([*taken, *taken[:1]], key=lambda message: message.id)\n",
    ),
    PlantedBug(
        name="claims are released at the first comparison",
        file="worker/store_loop.py",
        before="        lost = missing & self._unknown_claims\n",
        after="        lost = missing\n",
    ),
    PlantedBug(
        name="a success with a result is accepted whatever its token",
        file="store/sqlite/sql/completion.sql",
        before="  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended\n-- include: _join_running\n",
        after="  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended\n CROSS JOIN drumbeat_job AS job\n"
        " WHERE typeof(ended.column1) = 'text' AND job.id = ended.column1\n"
        "   AND job.state = 'running' AND job.instance = ?1\n    ON CONFLICT (id) DO NOTHING\n",
    ),
    PlantedBug(
        name="a cancelled job in the worker's buffer runs",
        file="worker/heartbeat_listener.py",
        before="        for job in self._buffer.remove(requests.keys()):\n",
        after="        for job in self._buffer.remove(()):\n",
    ),
    PlantedBug(
        name="the time-out of a job loses to that of its task",
        file="worker/runner.py",
        before="        limit = job.timeout or spec.timeout_us\n",
        after="        limit = spec.timeout_us or job.timeout\n",
    ),
    PlantedBug(
        name="a job that returns to its queue is no longer unique",
        file="core/uniqueness.py",
        before="            kept.append(str(job.unique))\n",
        after='            kept.append("")\n',
    ),
    PlantedBug(
        name="a claim that is answered after the death of its instance runs",
        file="worker/store_loop.py",
        before="            if self._has_claims_of(instance):\n",
        after="            if self._identity():\n",
    ),
    PlantedBug(
        name="jobs that a worker holds are started when its lease may have ended",
        file="worker/core.py",
        before="return not self.shutdown.is_stopping and self.lease.is_current()",
        after="return not self.shutdown.is_stopping",
    ),
    PlantedBug(
        name="numbers are not reserved before a power cut",
        file="store/sqlite/token_clock.py",
        before="            floor = ceiling\n",
        after="            floor = 0\n",
        promise="L1",
    ),
    PlantedBug(
        name="a waiter is not told when the lease before it ends",
        file="store/sqlite/locks.py",
        before="    deadlines = [at for at in (row.ahead, opening.get(row.id)) if at is not None]\n",
        after="    deadlines = [at for at in (opening.get(row.id),) if at is not None]\n",
        promise="L6",
    ),
    PlantedBug(
        name="a waiter is not told when a rate window opens",
        file="store/sqlite/locks.py",
        before="        return {first: opens_at}\n",
        after="        return {}\n",
        promise="R2",
    ),
    PlantedBug(
        name="a leader that leaves keeps its lease",
        file="store/sqlite/sql/instances.sql",
        before="   SET instance = NULL,\n       until = 0\n",
        after="   SET until = until\n",
        promise="C2",
    ),
    PlantedBug(
        name="a follower fires only what is ten seconds late",
        file="controller/firer.py",
        before="OVERDUE_DELAY_US = 1_000_000\n",
        after="OVERDUE_DELAY_US = 10_000_000\n",
        promise="S3",
    ),
    PlantedBug(
        name="missed fire times are caught up whatever the policy says",
        file="schedules/planner.py",
        before="    max_fires = definition.catch_up_limit if definition.catch_up is CatchUp.ALL else 1\n",
        after="    max_fires = definition.catch_up_limit\n",
        promise="S6",
    ),
    PlantedBug(
        name="a worker that drains goes on claiming",
        file="worker/worker.py",
        before="        parts.fetcher.stop()\n",
        after="",
        promise="D1",
    ),
    PlantedBug(
        name="a dead letter leaves no release",
        file="store/sqlite/migrations/0001_schema/09_ends.sql",
        before="     WHERE OLD.is_parent;\n",
        after="     WHERE OLD.is_parent AND NOT EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = OLD.id);\n",
        promise="W2",
    ),
    PlantedBug(
        name="an edge is counted twice",
        file="store/advance_plan.py",
        before="plan.met.get(row.child, 0) + 1",
        after="plan.met.get(row.child, 0) + 2",
        promise="W1",
    ),
    PlantedBug(
        name="a live parent does not hear of a child that is added later",
        file="store/sqlite/graph_insert.py",
        before="        if plan.live_parents:\n",
        after="        if plan.live_parents and not plan.live_parents:\n",
        promise="W2",
    ),
    PlantedBug(
        name="a replayed parent counts as met by the child that it revives",
        file="store/advance_plan.py",
        before="            plan.revived[child.id] = open_parents\n",
        after="            plan.revived[child.id] = max(0, open_parents - 1)\n",
        promise="W1",
    ),
    PlantedBug(
        name="a child that may run is met by every death of its parent",
        file="core/dependencies.py",
        before="ParentEvent.DISCARDED or life != edge_life else",
        after="ParentEvent.DISCARDED else",
        promise="W1",
    ),
    PlantedBug(
        name="a child stays cancelled because of another parent for ever",
        file="store/advance_plan.py",
        before="            plan.held[child.id] = failed\n",
        after="            pass\n",
        promise="W2",
    ),
    PlantedBug(
        name="a replay revives what a person has cancelled since",
        file="store/sqlite/jobs.py",
        before='            write.db.run(self._parts.sql.dependencies.forget_cancelled, {"ids": as_json(ended)})\n',
        after="            pass\n",
        promise="X2",
    ),
    PlantedBug(
        name="a later run does not load the steps before it",
        file="worker/job_steps.py",
        before="        self._must_load = bool(claimed.has_run or",
        after="        self._must_load = bool(",
        promise="T1",
    ),
    PlantedBug(
        name="a step counts whatever the claim that it was done under",
        file="store/sqlite/steps.py",
        before="        if (each.claim.id, each.claim.token) in current\n    ]",
        after="    ]",
        promise="T2",
    ),
    PlantedBug(
        name="a sleep ends at half its time",
        file="core/transitions.py",
        before="    until = now + outcome.delay if suspension.until is None else suspension.until\n",
        after="    until = now + outcome.delay // 2 if suspension.until is None else suspension.until\n",
        promise="T3",
    ),
    PlantedBug(
        name="a signal that was read stays unread",
        file="store/sqlite/steps.py",
        before='            db.run(self._sql.mark_read, facts | {"id": unread[0][0]})\n',
        after="            pass\n",
        promise="T4",
    ),
    PlantedBug(
        name="a wait that has ended takes another signal when its answer was lost",
        file="store/sqlite/steps.py",
        before="        if finished_at is not None:\n",
        after="        if finished_at is not None and result is None:\n",
        promise="T4",
    ),
    PlantedBug(
        name="a signal does not wake who waits for it",
        file="store/sqlite/sql/steps.sql",
        before="   AND suspended = 'signal:' || :name\n",
        after="   AND suspended = :name\n",
        promise="T5",
    ),
    PlantedBug(
        name="a run that is suspended does not look for signals that came first",
        file="store/sqlite/completion.py",
        before="        if waits := awaited_signals(outcomes):\n",
        after="        if (waits := awaited_signals(outcomes)) and not waits:\n",
        promise="T5",
    ),
    PlantedBug(
        name="a claim takes no room of its group",
        file="core/lanes.py",
        before="        running=lane.running + got,\n",
        after="",
        promise="G1",
    ),
    PlantedBug(
        name="a claim takes no room of its line",
        file="core/lanes.py",
        before="        running=line.running + count,\n",
        after="",
        promise="G1",
    ),
    PlantedBug(
        name="a run that is given back gives its room back twice",
        file="store/sqlite/migrations/0001_schema/10_lanes.sql",
        before="    UPDATE drumbeat_lane\n       SET running = running - 1\n",
        after="    UPDATE drumbeat_lane\n       SET running = running - 2\n",
        promise="G1",
    ),
    PlantedBug(
        name="the starts of a rate are forgotten",
        file="core/lanes.py",
        before="    starts = add_starts(bounds, lane.starts, got, now)\n",
        after="    starts = add_starts(bounds, [], got, now)\n",
        promise="G2",
    ),
    PlantedBug(
        name="an order is that of due times",
        file="store/sqlite/sql/limits.sql",
        before="ORDER BY job.place, job.id\n                                       LIMIT 2",
        after="ORDER BY job.run_at, job.id\n                                       LIMIT 2",
        promise="G3",
    ),
)
