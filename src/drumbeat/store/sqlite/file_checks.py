"""Checks of the file of a SQLite store: its path, the free disk space, and whether it is still the file that was opened.

The path is checked before a connection is opened, so that a wrong one gives one clear line and not an error of the driver.
"""

import contextlib
import os
import stat
from pathlib import Path

from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError, StoreFull, StoreLost, StoreUnavailable

# Below this, enqueue is refused while there is still space to finish running jobs (guarantee O2).
MIN_FREE_BYTES = 64 * 1024 * 1024

# WAL needs file locks and shared memory, which do not work between machines on these.
_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "coda", "lustre", "gpfs"),
        *("beegfs", "orangefs", "ocfs2", "gfs2", "ncpfs", "davfs", "vboxsf", "prl_fs"),
        *("fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.davfs2"),
    }
)


def check_path(path: Path, *, mounts: str | None = None) -> None:
    """Refuse a path that cannot hold a store.

    Raises:
        ConfigError: what is wrong with it, in one line.
    """
    folder = path.parent
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file in it, such as {path}/drumbeat.db", "url")
    if not folder.is_dir():
        raise ConfigError(f"{path}: the folder {folder} does not exist: make it, or choose another", "url")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{path}: the folder {folder} cannot be written by this user", "url")
    if path.exists():
        _check_permissions(path)
    kind = find_file_system(folder, _read_mounts() if mounts is None else mounts)
    if is_network(kind):
        raise ConfigError(
            f"{path} is on a network file system ({kind}), where SQLite can lose data: use a local disk, or PostgreSQL",
            "url",
        )


def create_private_file(path: Path) -> None:
    """Create an empty file that only this user can read, because arguments may contain secrets. SQLite gives `-wal` and
    `-shm` the same permissions. An existing file is not changed."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _check_permissions(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError(f"{path} is not a file", "url")
    if not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(f"{path} cannot be read and written by this user", "url")


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""  # this system has no such list


def find_file_system(folder: Path, mounts: str) -> str:
    """The type of the file system that holds this folder, by the kernel's list of mounts; empty if it is not listed."""
    real = folder.resolve()
    holders = {str(each) for each in (real, *real.parents)}
    best, found = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1]
        if "\\" in point:  # spaces and the like are written as octal escapes
            point = point.encode("utf-8", "surrogateescape").decode("unicode_escape")
        # A later line of the same mount point hides the earlier one.
        if point in holders and len(point) >= len(best):
            best, found = point, fields[2]
    return found


def file_system_of_folder(folder: Path) -> str:
    """As `find_file_system`, by the mounts of this process."""
    return find_file_system(folder, _read_mounts())


def is_network(kind: str) -> bool:
    return kind in _NETWORK


class DiskSpaceGuard:
    """Refuses jobs when the disk is nearly full. The disk is queried at most once a second."""

    def __init__(self, path: Path, *, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self._path = path
        self.min_free_bytes = min_free_bytes
        self._checked_at = float("-inf")
        self._free_bytes = 0

    def check(self) -> None:
        """Raises:
        StoreFull: less than `min_free_bytes` are free.
        """
        now = SYSTEM.monotonic()
        if now - self._checked_at >= 1 or self._free_bytes < self.min_free_bytes:
            try:
                disk = os.statvfs(self._path.parent)
            except OSError as error:
                raise StoreUnavailable(f"{self._path}: {error}") from error
            self._free_bytes, self._checked_at = disk.f_bavail * disk.f_frsize, now
        if self._free_bytes < self.min_free_bytes:
            raise StoreFull(
                f"{self._path}: only {self._free_bytes >> 20} MB of its disk are free; jobs are accepted again from"
                f" {self.min_free_bytes >> 20} MB on"
            )


class FileIdentity:
    """Detects that a file which SQLite has open was deleted or replaced: the database, its log, or the index of the log.

    A descriptor outlives its path, and what is written to a deleted file is lost: so this is checked before a write is
    acknowledged and before a read is answered. It takes a few microseconds; there is no cheaper way. A lost file stays lost:
    the connections keep the old one open, and its inode is not used again meanwhile.

    Create it when a connection has read something: before that, the log is not open yet.
    """

    def __init__(self, path: Path) -> None:
        self._inodes = tuple((name, inode_of(name)) for name in (str(path), f"{path}-wal", f"{path}-shm"))
        self._lost_file: str | None = None

    @property
    def is_lost(self) -> bool:
        """False also if the folder cannot be read now."""
        with contextlib.suppress(OSError):
            self._compare_inodes()
        return self._lost_file is not None

    def _compare_inodes(self) -> None:
        if self._lost_file is None:
            self._lost_file = next(
                (name for name, opened in self._inodes if opened is None or inode_of(name) != opened), None
            )

    def check(self, *, refresh: bool = True) -> None:
        """Without `refresh`, only report what is known already.

        Raises:
            StoreLost: a file was deleted or replaced.
            StoreUnavailable: the folder cannot be read.
        """
        if refresh:
            try:
                self._compare_inodes()
            except OSError as error:
                raise StoreUnavailable(f"{self._inodes[0][0]}: {error}") from error
        if self._lost_file is not None:
            raise StoreLost(
                f"{self._lost_file} was deleted or replaced while it was in use: this program still has the old file open, and"
                " writes nothing more; start it anew"
            )


def inode_of(path: str) -> tuple[int, int] | None:
    """The device and inode of the file at this path; None: there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
