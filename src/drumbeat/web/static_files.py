"""Static files: scripts and styles of this package.

Each has a version, a hash of its content. A response to an address with the version may be cached for ever; without it,
browsers revalidate and get 304 if nothing has changed. Not Starlette's StaticFiles: its ETag is made of time and size, which
differ between hosts, and its media types come from the host.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from starlette.responses import Response

from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
IMMUTABLE = "public, max-age=31536000, immutable"


class StaticQuery(msgspec.Struct, frozen=True, kw_only=True):
    v: str | None = None
    """The version that the page expects."""


class StaticFile(msgspec.Struct, frozen=True):
    content: bytes
    version: str
    changed_ns: int


class StaticFileCache:
    """The files of the folder, read once, and again when they change."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._read: dict[str, StaticFile] = {}

    def version_of(self, name: str) -> str:
        """Empty for a missing file: a page must not fail because of an icon."""
        found = self.find(name)
        return found.version if found else ""

    def find(self, name: str) -> StaticFile | None:
        # Untrusted: only plain names, so that none leaves the folder.
        if "/" in name or "\\" in name or name.startswith(".") or Path(name).suffix not in MEDIA_TYPES:
            return None
        path = self._folder / name
        try:
            changed_ns = path.stat().st_mtime_ns
            if (known := self._read.get(name)) is None or known.changed_ns != changed_ns:
                content = path.read_bytes()
                version = hashlib.sha256(content).hexdigest()[:16]
                known = self._read[name] = StaticFile(content, version, changed_ns)
        except (OSError, ValueError):
            return None
        return known


async def serve_static(request: DashboardRequest, file: str, query: StaticQuery) -> Response:
    """GET /static/{file}."""
    found = request.dashboard.static_files.find(file)
    if found is None:
        raise Problem(404, "no such file")
    tag = f'"{found.version}"'
    headers = {"ETag": tag, "Cache-Control": IMMUTABLE if query.v == found.version else "no-cache"}
    is_known = tag in request.headers.get("if-none-match", "")
    content, status = (b"", 304) if is_known else (found.content, 200)
    return Response(content, status, headers, MEDIA_TYPES[Path(file).suffix])
