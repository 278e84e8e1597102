"""Lua scripts of `lua/*.lua`: one file for each operation, loaded and checked at import.

A file begins with comments that say what it is called with:

    -- What it does, in a line or more.
    -- KEYS: 1 the prefix
    -- ARGV: 1 id, 2 ...
    -- returns: ...
    -- flags: allow-oom             (optional: it runs on a full server as well)
    -- include: _transitions             (optional, any number: the text of `_transitions.lua` is put here, once)

A line `-- inner` puts what follows into a function (see _base.lua).

A file `_name.lua` holds functions that several operations share; it may include others, and is no operation itself. A full
server refuses the first write of a script that adds, which is right for `add`, and wrong for all that makes room. Servers from
7 on take a flag for that. Before, a first write that adds nothing does the same: the prefix is no key, so its DEL is one.

This module talks to no server.
"""

import hashlib
import re
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

_HEADER = re.compile(r"\A(?:--[^\n]*\n)+")
_FIELD = re.compile(r"^-- (KEYS|ARGV|returns|flags):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include:[ \t]*(\w+)[ \t]*$", re.MULTILINE)
_REQUIRED_FIELDS = frozenset({"KEYS", "ARGV", "returns"})
_KNOWN_FLAGS = frozenset({"allow-oom"})
_INNER = re.compile(r"^-- inner$", re.MULTILINE)
_ALLOW_OOM_FLAG = "#!lua flags=allow-oom\n"
_ALLOW_OOM_WRITE = "redis.call('DEL', KEYS[1])\n"


class ScriptText(msgspec.Struct, frozen=True):
    """The text of a script and its SHA-1."""

    lua: str
    sha: str


class Script(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """An operation."""

    name: str
    lua: str
    """The text with its includes."""
    allow_oom: bool

    @cached_property
    def with_flags(self) -> ScriptText:
        """The text for servers that support flags."""
        return _hash_text(_ALLOW_OOM_FLAG + self.lua if self.allow_oom else self.lua)

    @cached_property
    def without_flags(self) -> ScriptText:
        return _hash_text(_ALLOW_OOM_WRITE + self.lua if self.allow_oom else self.lua)


def load_scripts(folder: Traversable) -> dict[str, Script]:
    """Load all operations of a folder by name.

    Raises:
        ValueError: a header lacks something, or an included file is not there.
    """
    files = {
        file.name.removesuffix(".lua"): file.read_text("utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    }
    return {name: _parse_script(name, files) for name in sorted(files) if not name.startswith("_")}


def _parse_script(name: str, files: dict[str, str]) -> Script:
    header = _HEADER.match(files[name])
    fields = dict(_FIELD.findall(header.group())) if header else {}
    if missing := sorted(_REQUIRED_FIELDS - fields.keys()):
        raise ValueError(f"{name}.lua: its header says nothing of {', '.join(missing)}")
    flags = set(fields.get("flags", "").split())
    if unknown := sorted(flags - _KNOWN_FLAGS):
        raise ValueError(f"{name}.lua: there is no flag {', '.join(unknown)}")
    lua = _expand_includes(name, files, set())
    if _INNER.search(lua):
        lua = _INNER.sub("return (function()", lua, count=1) + "end)()\n"
    return Script(name=name, lua=lua, allow_oom="allow-oom" in flags)


def _expand_includes(name: str, files: dict[str, str], seen: set[str]) -> str:
    """Return the text of a file with its includes, each where it is first named."""

    def read_include(line: re.Match[str]) -> str:
        include = line.group(1)
        if include not in files or not include.startswith("_"):
            raise ValueError(f"{name}.lua includes {include}.lua, which is not a file of shared functions")
        if include in seen:
            return ""
        seen.add(include)
        return _expand_includes(include, files, seen)

    return _INCLUDE.sub(read_include, files[name])


def _hash_text(lua: str) -> ScriptText:
    return ScriptText(lua, hashlib.sha1(lua.encode(), usedforsecurity=False).hexdigest())


SCRIPTS = load_scripts(resources.files(__package__).joinpath("lua"))
