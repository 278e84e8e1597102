"""What the journal says becomes the history that is checked."""

from pathlib import Path

import msgspec
import pytest

from tests.chaos import journal
from tests.chaos.history_reader import build_history, find_due
from tests.chaos.recorded_calls import JournalSink
from tests.proof import history as proof
from tests.proof.checkers import check


@pytest.mark.parametrize(
    ("steps", "due"),
    [
        ([], 12.0),
        ([(11.0, 0.5)], 11.5),
        ([(11.0, 30.0)], 11.0),
        ([(11.0, -30.0)], 12.0),
        ([(5.0, 30.0), (13.0, 30.0)], 12.0),
    ],
)
def test_a_delay_ends_when_the_stepped_clock_says_so(steps: list[tuple[float, float]], due: float) -> None:
    assert find_due(10.0, 2.0, steps) == due


def test_a_torn_line_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "journal"
    monkeypatch.setenv(journal.FILE, str(file))
    journal.write("asks", ids=["a", "b"], delay=0.0, key=None, batch="a")
    with file.open("ab") as torn:
        torn.write(b'\n[1,"worker-1.1",7,1,"star')
    journal.write("acknowledged", ids=["a", "b"], existing=["a", "b"])
    history = build_history(list(journal.read(file)), [], grace=1.0)
    assert [(call.id, call.acknowledged, call.batch) for call in history.enqueued] == [("a", True, 0), ("b", True, 0)]


def test_calls_are_read_as_they_ended_and_a_claim_while_draining_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(journal.FILE, str(tmp_path / "journal"))
    sink = JournalSink()
    asked = proof.TicketCall(lock="x", ticket="t", node="worker-1.1", call="acquire", start=1.0, lease=5.0)
    number = sink.add(asked)
    sink.add(msgspec.structs.replace(asked, ticket="u", start=2.0))  # was never answered
    answered = msgspec.structs.replace(asked, end=1.5, state="granted", token=3)
    sink.replace(number, answered)
    journal.write("started", run=1, job="a", token=1, task="quick", slots=6)
    journal.write("draining")
    journal.write("claims")
    history = build_history(list(journal.read(tmp_path / "journal")), [], grace=1.0)
    assert [(call.ticket, call.end, call.state) for call in history.ticket_calls] == [
        ("t", 1.5, "granted"),
        ("u", None, ""),
    ]
    assert [text[:3] for text in check(history) if text.startswith("D")] == ["D1:"]
