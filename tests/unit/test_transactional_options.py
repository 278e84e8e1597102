"""What `using(conn=...)` and `@app.task(transactional=...)` refuse where they are written."""

from typing import Any, cast

import pytest

from drumbeat.app import Drumbeat
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.tasks import Call
from tests.dropped_calls import errors_of_dropped_calls

CONN = cast("Any", object())


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat("sqlite:///unused.db")


def test_transactional_is_a_question_with_two_answers(app: Drumbeat) -> None:
    def ship() -> None: ...

    with pytest.raises(ConfigError, match="transactional must be True or False, not 'yes'"):
        app.task(transactional=cast("Any", "yes"))(ship)


def test_a_batch_has_no_job_to_complete(app: Drumbeat) -> None:
    def bulk(calls: list[Call[int]]) -> None: ...

    with pytest.raises(ConfigError, match="transactional and batch exclude each other"):
        app.task(batch=10, transactional=True)(bulk)


def test_notify_is_for_transactions_of_the_callers_own(app: Drumbeat) -> None:
    @app.task
    def ship(order: int) -> None: ...

    with pytest.raises(InvalidArguments, match="notify=False is for jobs that are stored in your own transaction"):
        ship.using(notify=False)
    with pytest.raises(InvalidArguments, match="notify must be True or False"):
        ship.using(conn=CONN, notify=cast("Any", 1))
    with pytest.raises(InvalidArguments, match="notify=False is for"):
        app.sync.enqueue_many([ship.bind(1)], notify=False)


def test_jobs_of_many_transactions_cannot_be_enqueued_together(app: Drumbeat) -> None:
    @app.task
    def ship(order: int) -> None: ...

    with pytest.raises(InvalidArguments, match="give conn to enqueue_many"):
        ship.using(conn=CONN).bind(1)


def test_the_async_form_needs_a_loop_also_with_a_connection(app: Drumbeat) -> None:
    @app.task
    def ship(order: int) -> None: ...

    with errors_of_dropped_calls() as told:
        ship.using(conn=CONN).enqueue(1)  # type: ignore[unused-coroutine]
    assert [str(error) for error in told] == [
        "ship.using(...).enqueue was called where no event loop runs: use ship.using(...).enqueue_sync"
    ]


def test_wrong_arguments_are_told_before_the_connection_is_looked_at(app: Drumbeat) -> None:
    @app.task
    def ship(order: int) -> None: ...

    with pytest.raises(InvalidArguments, match="order"):
        ship.using(conn=CONN).enqueue_sync(cast("Any", "x"))
