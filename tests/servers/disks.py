"""Small file systems of tests: one that they fill, and one whose power they cut. Only root may mount them."""

import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from tests.waiting import until_sync

MIN_PIECE = 4096


class SmallDisk:
    """Use `mount` and `unmount`; in a mount namespace of one's own (`unshare --mount`) a crash leaves nothing."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._megabytes = megabytes

    def mount(self) -> None:
        self.folder.mkdir(exist_ok=True)
        options = f"size={self._megabytes}m,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "drumbeat", str(self.folder)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def fill(self, *, but: int = 0) -> None:
        """Leave `but` bytes."""
        with open(self._ballast, "ab") as ballast:
            size = self._count_free() - but
            while size >= MIN_PIECE and self._count_free() > but:
                try:
                    os.posix_fallocate(ballast.fileno(), os.fstat(ballast.fileno()).st_size, size)
                except OSError:  # somebody was quicker, or the disk needs some for itself
                    size //= 2

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def _count_free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


class LoopDisk:
    """An ext4 in a file. `cut_power` loses what nobody has synced, as xfstests do it: the file system takes no further write,
    its own journal included, and is mounted anew."""

    _SHUTDOWN, _WITHOUT_FLUSH = 0x8004587D, 2
    """EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH"""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._image = folder.with_suffix(".img")
        self._megabytes = megabytes

    def mount(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if not self._image.exists():
            with self._image.open("wb") as image:
                image.truncate(self._megabytes << 20)
            subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.folder)], check=True)

    def unmount(self) -> None:
        until_sync(self._can_unmount, deadline=30, what=f"the last user of {self.folder} to leave")

    def _can_unmount(self) -> bool:
        return subprocess.run(["umount", str(self.folder)], capture_output=True, check=False).returncode == 0

    def cut_power(self) -> None:
        """Whoever still uses it gets errors. End them, then `unmount` and `mount`."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, self._SHUTDOWN, struct.pack("I", self._WITHOUT_FLUSH))
        finally:
            os.close(handle)


@functools.cache
def find_loop_obstacle() -> str | None:
    """Why this process may mount no files; None: it may."""
    if (obstacle := find_obstacle()) is not None:
        return obstacle
    with tempfile.TemporaryDirectory() as folder:
        trial = "truncate -s 8M image && mkfs.ext4 -q -F image && mkdir disk && mount -o loop image disk && umount disk"
        tried = subprocess.run(
            ["unshare", "--mount", "sh", "-c", trial], cwd=folder, capture_output=True, text=True, check=False
        )
    return None if tried.returncode == 0 else f"this process may mount no files: {tried.stderr.strip()}"


@functools.cache
def find_obstacle() -> str | None:
    """Why this process may not mount; None: it may."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "drumbeat", folder],
            capture_output=True,
            text=True,
            check=False,
        )
    return None if tried.returncode == 0 else f"this process may not mount: {tried.stderr.strip()}"
