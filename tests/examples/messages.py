"""Every message that Drumbeat may show to a user, as a pattern, found in its source: errors, refusals, and log records."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.meta.project import SOURCE

KINDS = {
    *("ConfigError", "InvalidArguments", "StoreUnavailable", "StoreFull", "StoreLost", "StoreError"),
    *("ChildFailed", "BadInput", "NotDone", "TimeoutError"),
    *("error_logger", "warning_logger"),
}
LEVELS = {"warning", "error", "critical"}
NOT_LOOKED_AT = ("store/postgres", "store/redis", "cli/demo")
# Their refusals name a value and say what is allowed: that is all there is to know.
SPEAK_FOR_THEMSELVES = (
    *(
        "names.py",
        "durations.py",
        "retry.py",
        "settings.py",
        "settings_loader.py",
        "dotenv.py",
        "tasks/options.py",
        "codec/argument_errors.py",
    ),
    *(
        "setting_parsers.py",
        "web/api/",
        "web/pages/",
        "admin/",
        "cli/",
        "schedules/",
        "tasks/schedule_options.py",
        "testing/",
        "override.py",
        "contrib/django/",
    ),
)
GAP = "\ufffc"


class Message(NamedTuple):
    text: str
    """With ... for what varies."""
    pattern: str
    """What such messages match."""
    needs_help: bool


@cache
def messages() -> list[Message]:
    """Those with enough words of their own to be known by."""
    found: dict[str, Message] = {}
    for path, text in _texts():
        shown = text.replace(GAP, "...")
        if " " in shown and len(re.sub(r"\W", "", shown)) > 6:
            pattern = re.escape(text).replace(re.escape(GAP), ".*")
            found[shown] = Message(shown, pattern, not path.startswith(SPEAK_FOR_THEMSELVES))
    return sorted(found.values())


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(NOT_LOOKED_AT):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and _is_told(node):
                yield name, _text(node.args[0])


@cache
def patterns() -> list[re.Pattern[str]]:
    """What any text in the source can become, told by an error or not."""
    nodes = (node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    texts = {_text(node) for node in nodes if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp)}
    known = (text for text in texts if len(re.sub(r"\W", "", text)) > 6)
    return [re.compile(re.escape(text).replace(re.escape(GAP), ".*")) for text in known]


def _is_told(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in KINDS or name == "error"  # `error`: a Refusal that the caller chooses
        case ast.Attribute(value=ast.Name(id="log"), attr=level):
            return level in LEVELS
        case ast.Attribute(value=ast.Call(), attr="__init__"):
            return True  # super().__init__(message) of an error
        case _:
            return False


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("%s", GAP)
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case _:
            return GAP
