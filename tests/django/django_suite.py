"""Django's own tests of backends for tasks, run against ours: those of the source of a Django 6 that is unpacked somewhere.

    pip download --no-binary :all: --no-deps django        then unpack it
    python -m tests.django.django_suite django-6.1         with that Django installed

Nothing of it is kept here. Its tests name Django's two backends, which keep tasks and do not run them, or run them at once: in
a copy ours stands in their place, on a store and a worker of the testing kit.
"""

import re
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import django
from django.conf import settings

BACKENDS = "tests.django.suite_backends"
NOT_OURS = {
    # What ours can do, and that one cannot.
    "ImmediateBackendTestCase.test_cannot_get_result": "results can be got",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "results can be refreshed",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "tasks can be deferred",
    # What only makes sense where the task runs in the caller's own process.
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "a task cannot interrupt its caller",
    # What looks into the list in memory that DummyBackend is.
    "DummyBackendTestCase.test_clear": "a store is not cleared",
    "DummyBackendTestCase.test_refresh_result": "the test changes the stored object",
    "DummyBackendTestCase.test_refresh_result_async": "the test changes the stored object",
}


def main(source: Path) -> int:
    if not (source / "tests" / "tasks").is_dir():
        sys.exit(f"{source} has no tests/tasks: it is no source of Django 6")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(source / "tests" / "tasks", folder / "tasks")
        for file in (folder / "tasks").glob("test_*.py"):
            file.write_text(put_in_place(file.read_text(encoding="utf-8")), encoding="utf-8")
        sys.path.insert(0, name)
        configure(folder)
        return run()


def put_in_place(text: str) -> str:
    """The test with our backends."""
    for module, theirs, ours in (
        ("dummy", "DummyBackend", "StoredBackend"),
        ("immediate", "ImmediateBackend", "FinishedBackend"),
    ):
        text = text.replace(f'"django.tasks.backends.{module}.{theirs}"', f'"{BACKENDS}.{ours}"')
        text = re.sub(
            rf"from django\.tasks\.backends\.{module} import {theirs}\n",
            f"from {BACKENDS} import {ours} as {theirs}\n",
            text,
        )
    return text


def configure(folder: Path) -> None:
    settings.configure(
        SECRET_KEY="of tests",
        INSTALLED_APPS=["drumbeat.contrib.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "site.db"}},
        DRUMBEAT={"url": f"sqlite:///{folder}/jobs.db"},
        TASKS={"default": {"BACKEND": f"{BACKENDS}.StoredBackend", "QUEUES": []}},
        USE_TZ=True,
    )
    django.setup()


def run() -> int:
    from django.test.runner import DiscoverRunner

    from drumbeat.contrib.django import app
    from drumbeat.testing import Kit
    from tests.django.suite_backends import KIT

    class Runner(DiscoverRunner):  # type: ignore[misc]
        def build_suite(self, *args: object, **options: object) -> unittest.TestSuite:
            found = list(each_test(super().build_suite(*args, **options)))
            names = {test: test.id().partition(".")[2].partition(".")[2] for test in found}
            left = sorted(name for name in names.values() if name in NOT_OURS)
            print(f"{len(found)} tests of Django, {len(left)} that do not apply:")
            print("".join(f"  {name}: {NOT_OURS[name]}\n" for name in left))
            return unittest.TestSuite(test for test, name in names.items() if name not in NOT_OURS)

    import_module("tasks.tasks")  # before the worker starts: it knows what is registered by then
    kit = Kit(app)
    with kit:
        KIT.append(kit)
        return int(Runner(verbosity=2 if "-v" in sys.argv else 1).run_tests(["tasks"]))


def each_test(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from each_test(each)
        else:
            yield each


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if len(sys.argv) > 1 else "which source of Django? Name its folder")
