"""An app is found by its name; whatever is wrong with a program is told in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from drumbeat import appref
from drumbeat.app import Drumbeat
from drumbeat.errors import ConfigError
from drumbeat.settings import Settings
from drumbeat.settings_loader import load

HEAD = "from drumbeat.app import Drumbeat\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # type: ignore[misc]
    """An empty current folder; what is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def refusal(ref: str) -> str:
    with pytest.raises(ConfigError) as raised:
        appref.load(ref)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_an_app_is_loaded_from_the_current_folder(folder: Path) -> None:
    (folder / "shop.py").write_text(f"{HEAD}app = Drumbeat(name='shop')")
    assert appref.load("shop:app").settings.name == "shop"


def test_a_module_alone_means_its_only_app(folder: Path) -> None:
    (folder / "alone.py").write_text(f"{HEAD}beat = Drumbeat(name='alone')\nsame = beat")
    assert appref.load("alone").settings.name == "alone"


def test_an_app_may_be_an_attribute_of_something(folder: Path) -> None:
    (folder / "inner.py").write_text(f"{HEAD}class Box:\n    app = Drumbeat(name='inner')")
    assert appref.load("inner:Box.app").settings.name == "inner"


def test_modules_that_register_tasks_are_imported_too(folder: Path) -> None:
    (folder / "base.py").write_text(f"{HEAD}app = Drumbeat(imports=['more'])")
    (folder / "more.py").write_text("from base import app\n@app.task\ndef extra() -> None: ...")
    assert [task.name for task in appref.load("base:app")._internals.registry] == ["extra"]


def test_a_missing_module_is_named_with_the_folder(folder: Path) -> None:
    assert refusal("shopp:app") == f"there is no module 'shopp' in {folder}, nor elsewhere on Python's path"


def test_a_missing_package_of_a_module_is_named(folder: Path) -> None:
    assert "there is no module 'shop.jobs' (there is no 'shop')" in refusal("shop.jobs:app")


def test_a_module_that_lacks_an_import_of_its_own_is_told_apart_from_a_missing_one(folder: Path) -> None:
    (folder / "needy.py").write_text("import not_installed_anywhere")
    message = refusal("needy:app")
    assert message.startswith("module 'needy' cannot be imported: ModuleNotFoundError: No module named 'not_installed")
    assert message.endswith(f"({folder / 'needy.py'}:1)")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1\nx / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
        ("def (:", "SyntaxError: invalid syntax"),
        (f"{HEAD}Drumbeat(colour='red')", "there is no setting 'colour'"),
    ],
)
def test_an_error_inside_the_module_is_told_with_its_place_and_kept_as_the_cause(
    folder: Path, source: str, told: str
) -> None:
    (folder / "wrong.py").write_text(source)
    message = refusal("wrong:app")
    assert message.startswith(f"module 'wrong' cannot be imported: {told}")
    assert f"{folder / 'wrong.py'}:" in message
    with pytest.raises(ConfigError) as raised:
        appref.load("wrong:app")
    assert raised.value.__cause__ is not None


def test_a_missing_name_is_answered_with_those_that_are_there(folder: Path) -> None:
    (folder / "two.py").write_text(f"{HEAD}one = Drumbeat()\ntwo = Drumbeat()\nthree = 3")
    assert refusal("two:app") == "module 'two' has no 'app'; there is one, two"
    assert refusal("two:three") == "'three' in module 'two' is int, not a Drumbeat; there is one, two"
    assert refusal("two") == "which app of module 'two' is meant? there is one, two"


def test_a_module_without_an_app_is_told(folder: Path) -> None:
    (folder / "plain.py").write_text("x = 1")
    assert refusal("plain") == "which app of module 'plain' is meant? there is no Drumbeat in it"


@pytest.mark.parametrize("ref", ["shop.py", "shop.py:app", "./shop.py", "src/shop"])
def test_a_file_is_answered_with_the_modules_name(ref: str) -> None:
    assert "write the module's name" in refusal(ref)


@pytest.mark.parametrize("ref", ["", ":app", "shop:", "a b:c", "shop:app:app", "shop..x:app"])
def test_what_is_no_name_is_refused(ref: str) -> None:
    refusal(ref)


def test_an_app_is_found_by_the_module_that_has_it(folder: Path) -> None:
    (folder / "findme.py").write_text(f"{HEAD}beat = Drumbeat()")
    app = appref.load("findme:beat")
    assert appref.find_ref(app) == "findme:beat"
    assert appref.load("findme:beat") is app


def test_an_app_that_no_module_has_is_not_found() -> None:
    assert appref.find_ref(Drumbeat()) is None


@pytest.mark.parametrize(("command", "ref"), [(["prog.py"], "__main__:app"), (["-m", "prog"], "prog:app")])
def test_the_program_that_was_started_is_where_its_app_is_found(folder: Path, command: list[str], ref: str) -> None:
    (folder / "prog.py").write_text(f"{HEAD}from drumbeat import appref\napp = Drumbeat()\nprint(appref.find_ref(app))")
    output = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == ref


def test_what_was_typed_in_is_not_found() -> None:
    source = f"{HEAD}from drumbeat import appref\napp = Drumbeat()\nprint(appref.find_ref(app))"
    output = subprocess.run([sys.executable], input=source, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "None"


def test_a_program_that_is_being_imported_knows_it(folder: Path) -> None:
    (folder / "asks.py").write_text(
        f"{HEAD}from drumbeat import appref\napp = Drumbeat(name=str(appref.is_importing()))\napp.run()"
    )
    assert appref.load("asks:app").settings.name == "True"
    assert not appref.is_importing()


def test_settings_given_as_flags_are_the_same_settings_elsewhere() -> None:
    for given in (
        {},
        {"drain": "forever", "queues": "critical=6,low", "imports": "a.b,c", "concurrency": 3, "app": "x:y"},
    ):
        settings = load(given, {})
        again = load(appref.to_flags(settings), {})
        assert _values(again) == _values(settings)


def _values(settings: Settings) -> dict[str, object]:
    return {name: getattr(settings, name) for name in settings.__struct_fields__ if name != "origin"}
