"""`manage.py drumbeat run --reload`: what the reloader notices."""

from pathlib import Path

import pytest

from drumbeat.clock import SystemClock
from drumbeat.contrib.django.reloader import EXIT_RELOAD, look_back, make_project_reloader
from tests.apps.django_site import tasks


def test_a_file_that_changed_while_the_worker_started_is_noticed() -> None:
    """The reloader's first look comes seconds after the imports on a busy machine, and takes what it sees for what runs."""
    reloader = make_project_reloader()
    look_back(reloader, Path(tasks.__file__).stat().st_mtime_ns // 1_000 - 1)
    with pytest.raises(SystemExit) as ended:
        next(reloader.tick())
    assert ended.value.code == EXIT_RELOAD


def test_files_that_have_not_changed_since_are_let_be() -> None:
    reloader = make_project_reloader()
    look_back(reloader, SystemClock().now_us())
    ticker = reloader.tick()
    assert [next(ticker), next(ticker)] == [None, None]
