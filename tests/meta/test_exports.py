"""`drumbeat.__all__` is the public face; anything else may change without notice."""

import inspect
import subprocess
import sys

import drumbeat
import drumbeat.errors
import drumbeat.events


def test_the_public_names_are_sorted_and_nothing_else_is_public() -> None:
    public = {name for name, value in vars(drumbeat).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert drumbeat.__all__ == sorted(public)


def test_importing_the_package_loads_no_driver_and_no_web_framework() -> None:
    heavy = ["asyncpg", "redis", "starlette", "uvicorn", "jinja2", "uvloop", "pydantic", "confluent_kafka", "nats"]
    program = f"import sys, drumbeat; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_a_name_means_one_thing_wherever_it_is_imported_from() -> None:
    for module in (drumbeat.errors, drumbeat.events):
        both = {name for name in drumbeat.__all__ if hasattr(module, name)}
        assert {name for name in both if getattr(module, name) is not getattr(drumbeat, name)} == set()
    kinds = [
        {name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__}
        for module in (drumbeat.errors, drumbeat.events)
    ]
    assert kinds[0] & kinds[1] == set()
