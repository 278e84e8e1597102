"""What the journal says becomes the history that is checked."""

from pathlib import Path

import pytest

from tests.chaos import journal
from tests.chaos.history_reader import build_history, find_due


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
