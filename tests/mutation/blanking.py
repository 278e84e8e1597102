"""Comments and literals of SQL and Lua blanked out, at the same length: what is left is code, and offsets stay right."""

import re

SQL_SKIPPED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"", re.DOTALL)
LUA_SKIPPED = re.compile(r"--\[\[.*?\]\]|--[^\n]*|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)


def blank_sql(source: str) -> str:
    return _blank(SQL_SKIPPED, source)


def blank_lua(source: str) -> str:
    return _blank(LUA_SKIPPED, source)


def _blank(skipped: re.Pattern[str], source: str) -> str:
    """A literal becomes x's: it is still an operand. A comment becomes spaces."""

    def cover(found: re.Match[str]) -> str:
        is_comment = found[0].startswith(("--", "/*"))
        return "".join("\n" if letter == "\n" else " " if is_comment else "x" for letter in found[0])

    return skipped.sub(cover, source)
