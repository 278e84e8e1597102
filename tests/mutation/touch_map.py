"""Which test touches what: made by a run of the tests under tracer.py, kept outside of the repository, file by file.

A file of tests is traced again when it has changed. When the source has, its lines are found again by their text: what a
test runs changes far less often than where it stands. `--remap` makes all of it anew.
"""

import difflib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from tests.planting import PACKAGE, ROOT


class TestTouches(msgspec.Struct, frozen=True, kw_only=True):
    __test__ = False

    seconds: float
    lines: dict[str, list[int]]
    """By file, relative to the package."""
    names: frozenset[str]
    """`sql <statement>`, `lua <script>`, and `process`: it starts one of Python, whose lines are not seen."""


class TracedTests(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of the tracer has written."""

    tests: dict[str, TestTouches]
    failed: list[str]


class TracedFile(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    """Of the file of tests."""
    sources: dict[str, str]
    """Digests of the package's files, as they were."""
    tests: dict[str, TestTouches]


class TouchMap(msgspec.Struct, kw_only=True, dict=True):
    files: dict[str, TracedFile] = {}
    """By file of tests."""
    texts: dict[str, str] = {}
    """Texts of the package's files by their digests."""

    @classmethod
    def load(cls) -> "TouchMap":
        try:
            return msgspec.msgpack.decode(place().read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return cls()

    def save(self) -> None:
        used = {digest for file in self.files.values() for digest in file.sources.values()}
        self.texts = {digest: text for digest, text in self.texts.items() if digest in used}
        target = place()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(msgspec.msgpack.encode(self))
        Path(file.name).replace(target)

    def is_fresh(self, test_file: str) -> bool:
        return test_file in self.files and self.files[test_file].digest == digest_of((ROOT / test_file).read_text())

    def add(self, test_file: str, tests: dict[str, TestTouches]) -> None:
        texts = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
        self.texts |= {digest_of(text): text for text in texts.values()}
        self.files[test_file] = TracedFile(
            digest=digest_of((ROOT / test_file).read_text()),
            sources={file: digest_of(text) for file, text in texts.items()},
            tests=tests,
        )

    @cached_property
    def tests(self) -> dict[str, TestTouches]:
        """All of them, by id, with lines of the source as it is now."""
        return {id: touches for file in self.files.values() for id, touches in self._translate(file)}

    def _translate(self, traced: TracedFile) -> Iterator[tuple[str, TestTouches]]:
        moves = {file: self._moves(file, digest) for file, digest in traced.sources.items()}
        for id, touches in traced.tests.items():
            lines = {
                file: found if (move := moves[file]) is None else sorted(move[line] for line in found if line in move)
                for file, found in touches.lines.items()
            }
            yield id, msgspec.structs.replace(touches, lines=lines)

    def _moves(self, file: str, digest: str) -> dict[int, int] | None:
        """Where each line of the file is now; None: nothing has moved."""
        path = PACKAGE / file
        now = path.read_text() if path.exists() else ""
        key = (file, digest)
        if digest_of(now) == digest:
            return None
        if key not in self._known_moves:
            matcher = difflib.SequenceMatcher(None, self.texts[digest].splitlines(), now.splitlines(), autojunk=False)
            moves: dict[int, int] = {}
            for kind, a, a_end, b, b_end in matcher.get_opcodes():
                if kind == "equal" or a_end - a == b_end - b:
                    moves |= dict(zip(range(a + 1, a_end + 1), range(b + 1, b_end + 1), strict=True))
            self._known_moves[key] = moves
        return self._known_moves[key]

    @cached_property
    def _known_moves(self) -> dict[tuple[str, str], dict[int, int]]:
        return {}


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def place() -> Path:
    """One for each working tree."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "drumbeat-mutation" / f"touches-{digest_of(str(ROOT))}.msgpack"
