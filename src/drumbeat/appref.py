"""Finds a program's Drumbeat object by `module:attr`, for commands and for child processes, which import it again.

Importing a module runs user code, so every failure there is reported in one line that names the module.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NewType

import msgspec

from drumbeat.errors import ConfigError
from drumbeat.settings import FOREVER, NAMES, Settings

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

AppRef = NewType("AppRef", str)
"""`module:attr`; users may also write `module` alone."""

MAIN = "__main__"
_LIBRARY = os.path.dirname(os.__file__)
_IMPORT_MACHINERY = (
    os.path.dirname(__file__),
    "<frozen ",
    os.path.join(_LIBRARY, "importlib"),
    os.path.join(_LIBRARY, "multiprocessing"),
)
_importing = 0


def is_importing() -> bool:
    """Whether a program is being imported to find its app: then `app.run()` does nothing."""
    return _importing > 0


def needs_main(ref: str) -> bool:
    """Whether the app is in the main script, which a child process must run again."""
    return _split_ref(ref)[0] == MAIN


def load(ref: str, *, prepare: Callable[[], None] | None = None) -> Drumbeat:
    """The app with this reference, after importing all modules that register its tasks.

    In a spawned process `prepare` makes the parent's script known as `__main__`, if that is where the app is.

    Raises:
        ConfigError: there is none, in one line; an error of the program itself is its cause.
    """
    module_name, attr = _split_ref(ref)
    if prepare is not None and module_name == MAIN:
        with _report_import_errors(MAIN):
            prepare()
    module = import_module(module_name)
    app = _find_named_app(module, attr) if attr else _find_only_app(module)
    for name in app.settings.imports:
        import_module(name)
    return app


def to_flags(settings: Settings) -> dict[str, Any]:
    """Flags (JSON values) that give the same app the same settings in another process."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    flags = {name: values[name] for name in NAMES if values[name] is not None}
    return flags if "drain" in flags else flags | {"drain": FOREVER}


def import_module(name: str) -> ModuleType:
    """Import a user module, from the current folder or Python's path.

    Raises:
        ConfigError: it is missing, or fails.
    """
    if (folder := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    return import_installed(name)


def import_installed(name: str) -> ModuleType:
    """Import a user module, from Python's path alone.

    Raises:
        ConfigError: it is missing, or fails.
    """
    with _report_import_errors(name):
        return importlib.import_module(name)


def find_ref(app: object) -> AppRef | None:
    """The reference by which a child process finds this app; None if no module has it as a variable.

    The main module comes first: it has imported everything that registers tasks.
    """
    main = sys.modules.get(MAIN)
    # An interactive session cannot be imported again. (Python knows the main module by more than one name.)
    modules = {} if main is None or not _is_file(main) else {_main_module_name(main): main}
    modules |= {name: module for name, module in sys.modules.items() if module is not main}
    for name, module in modules.items():
        if not isinstance(module, ModuleType):
            continue
        # Not with getattr, which may trigger lazy imports.
        names: dict[str, object] = object.__getattribute__(module, "__dict__")
        for attr, value in names.copy().items():
            if value is app and attr.isidentifier():
                return AppRef(f"{name}:{attr}")
    return None


def _is_file(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.isfile(file)


def _main_module_name(main: ModuleType) -> str:
    """The real name of a module that runs as `__main__`, as with `python -m shop.jobs`."""
    return MAIN if main.__spec__ is None else main.__spec__.name


def _split_ref(ref: str) -> tuple[str, str]:
    module, _, attr = ref.strip().partition(":")
    if module.endswith(".py") or os.sep in module:
        wanted = module.removesuffix(".py").replace(os.sep, ".").strip(".")
        raise ConfigError(f"app {ref!r} is a file: write the module's name, {wanted}:{attr or 'app'}", "app")
    if not all(piece.isidentifier() for piece in (*module.split("."), *(attr.split(".") if attr else ()))):
        raise ConfigError(f"app {ref!r} must be module:attr, such as app:app or shop.jobs:app", "app")
    return module, attr


@contextmanager
def _report_import_errors(name: str) -> Iterator[None]:
    """Report errors of an import in the body as a ConfigError of one line."""
    global _importing
    _importing += 1
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(_missing_module_message(name, error.name), "app") from error
        raise _import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error
    finally:
        _importing -= 1


def _missing_module_message(name: str, missing: str) -> str:
    part = "" if missing == name else f" (there is no {missing!r})"
    return f"there is no module {name!r}{part} in {os.getcwd()}, nor elsewhere on Python's path"


def _import_error(name: str, error: BaseException) -> ConfigError:
    """The module's own error, with its location in user code."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_IMPORT_MACHINERY)
    ]
    location = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        location = f" ({error.filename}:{error.lineno})"
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return ConfigError(f"module {name!r} cannot be imported: {kind}{text}{location}", "app")


def _drumbeat_class() -> type[Drumbeat]:
    # Imported by name: this module lies below the app, because workers use it in their child processes.
    kind: type[Drumbeat] = importlib.import_module("drumbeat.app").Drumbeat
    return kind


def _apps_of(module: ModuleType) -> dict[str, Drumbeat]:
    kind = _drumbeat_class()
    return {attr: value for attr, value in vars(module).items() if isinstance(value, kind)}


def _find_named_app(module: ModuleType, attr: str) -> Drumbeat:
    found: object = module
    for piece in attr.split("."):
        if not hasattr(found, piece):
            available = _format_app_names(_apps_of(module))
            raise ConfigError(f"module {module.__name__!r} has no {attr!r}; {available}", "app")
        found = getattr(found, piece)
    if not isinstance(found, _drumbeat_class()):
        available = _format_app_names(_apps_of(module))
        raise ConfigError(
            f"{attr!r} in module {module.__name__!r} is {type(found).__name__}, not a Drumbeat; {available}", "app"
        )
    return found


def _find_only_app(module: ModuleType) -> Drumbeat:
    apps = {id(app): app for app in _apps_of(module).values()}
    if len(apps) != 1:
        raise ConfigError(
            f"which app of module {module.__name__!r} is meant? {_format_app_names(_apps_of(module))}", "app"
        )
    return next(iter(apps.values()))


def _format_app_names(attrs: Iterable[str]) -> str:
    names = sorted(attrs)
    return f"there is {', '.join(names)}" if names else "there is no Drumbeat in it"
