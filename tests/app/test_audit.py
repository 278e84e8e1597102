"""`app.audit`: what is done inside `act` is on record before it is done, and how it ended after."""

import asyncio
import logging
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.admin import Audit
from drumbeat.core.audit import MAX_TARGET_LENGTH, AuditEntry
from drumbeat.errors import InvalidArguments, StoreUnavailable
from tests.faults import FaultyStore

ADA: dict[str, Any] = {"who": "ada", "role": "operator", "verb": "queues.pause", "target": "mail", "reason": "quiet"}


async def only(app: Drumbeat) -> AuditEntry:
    [found] = await app.audit.list()
    return found


class FailingClient:
    """Lends a store that fails on purpose."""

    def __init__(self, faulty: FaultyStore) -> None:
        self.faulty = faulty

    async def store(self) -> FaultyStore:
        return self.faulty


async def faulty(app: Drumbeat) -> tuple[Audit, FaultyStore]:
    store = FaultyStore(await app._internals.store())
    return Audit(FailingClient(store)), store  # type: ignore[arg-type]


async def test_an_act_is_on_record_while_it_is_done_and_after(app: Drumbeat) -> None:
    async with app.audit.act(**ADA) as act:
        begun = await only(app)
        assert {name: getattr(begun, name) for name in ADA} == ADA
        assert (begun.id, begun.via, begun.outcome) == (act.id, "python", None)
        act.touched = 3
    done = await app.audit.show(act.id)
    assert (done.touched, done.outcome, done.at) == (3, "done", begun.at)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvalidArguments("there is no queue 'mail'", "queue"), "refused"),
        (ValueError("boom\0"), "failed: ValueError: boom\\x00"),
        (StoreUnavailable("away"), "failed: StoreUnavailable: away"),
        (asyncio.CancelledError(), "failed: CancelledError: "),
    ],
    ids=["refused", "failed", "store", "cancelled"],
)
async def test_what_is_raised_goes_on_and_is_on_record(app: Drumbeat, error: BaseException, message: str) -> None:
    async def act_in_vain() -> None:
        async with app.audit.act(**ADA) as act:
            act.touched = 2
            raise error

    with pytest.raises(type(error)) as caught:
        await act_in_vain()
    assert caught.value is error
    found = await only(app)
    assert (found.touched, found.outcome) == (2, message)


async def test_what_cannot_be_put_on_record_is_not_done(app: Drumbeat) -> None:
    audit, store = await faulty(app)
    store.fail_before["audit.begin"] = 1
    done = False
    with pytest.raises(StoreUnavailable):
        async with audit.act(**ADA):
            done = True
    assert (done, await app.audit.list()) == (False, [])


async def test_what_was_done_is_done_though_its_end_is_not_on_record(
    app: Drumbeat, caplog: pytest.LogCaptureFixture
) -> None:
    audit, store = await faulty(app)
    store.fail_before["audit.end"] = 1
    with caplog.at_level(logging.WARNING):
        async with audit.act(**ADA):
            pass
    assert (await only(app)).outcome is None
    assert "outcome of an act was not recorded" in caplog.text


async def test_any_text_can_be_put_on_record(app: Drumbeat) -> None:
    async with app.audit.act(who="a\0\ud800", verb="jobs.cancel", target="x" * 10_000, reason="<img src=x>"):
        pass
    found = await only(app)
    assert (found.who, found.reason) == ("a\\x00\\ud800", "<img src=x>")
    assert len(found.target) <= MAX_TARGET_LENGTH and "characters cut" in found.target


async def test_acts_are_listed_newest_first_by_who_what_and_to_which(app: Drumbeat) -> None:
    for who, verb, target in (
        ("ada", "queues.pause", "mail"),
        ("bob", "jobs.cancel", "j1"),
        ("ada", "jobs.cancel", "j2"),
    ):
        async with app.audit.act(who=who, verb=verb, target=target):
            pass

    async def targets(**wanted: Any) -> list[str]:
        return [act.target for act in await app.audit.list(**wanted)]

    assert await targets() == ["j2", "j1", "mail"]
    assert await targets(who="ada") == ["j2", "mail"]
    assert await targets(verb="jobs.") == ["j2", "j1"]
    assert await targets(target="j1") == ["j1"]
    [newest] = await app.audit.list(limit=1)
    assert await targets(before=newest.id) == ["j1", "mail"]


@pytest.mark.parametrize(
    "wanted", [{"limit": 0}, {"limit": True}, {"before": "x"}, {"who": "\0"}, {"verb": 7}], ids=str
)
async def test_a_list_that_means_nothing_is_refused(app: Drumbeat, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        await app.audit.list(**wanted)
    assert caught.value.argument == next(iter(wanted))


@pytest.mark.parametrize("id", ["nonsense", "01a1df41-b512-7f91-b79d-2750073b197a"])
async def test_an_unknown_entry_is_refused(app: Drumbeat, id: str) -> None:
    with pytest.raises(InvalidArguments, match="there is no act"):
        await app.audit.show(id)


def test_code_without_a_loop_acts_on_record_as_well(app_url: str) -> None:
    app = Drumbeat(app_url)
    try:
        with app.sync.audit.act(**ADA) as act:
            assert [found.outcome for found in app.sync.audit.list()] == [None]
            act.touched = 1
        with pytest.raises(ValueError, match="boom"), app.sync.audit.act(**ADA):
            raise ValueError("boom")
        assert [(found.touched, found.outcome) for found in app.sync.audit.list()] == [
            (0, "failed: ValueError: boom"),
            (1, "done"),
        ]
        assert app.sync.audit.show(act.id).outcome == "done"
    finally:
        app.sync.close()
