"""Whose locks hold on one host alone, by what the kernel says of a path's file system.

A lock on a network volume that is kept on the host excludes that host's processes, so that trying
it out shows nothing: another host gets it, too. But the mount says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
"""What is mounted, as Linux tells it; elsewhere there is no such file."""
_NFS = ("nolock", "local_lock=all", "local_lock=flock")
_SMB = ("nobrl",)
_LOCAL: dict[str, tuple[str, ...]] = {
    "nfs": _NFS,
    "nfs4": _NFS,
    "cifs": _SMB,
    "smb3": _SMB,
    "lustre": ("localflock",),
    "gfs2": ("localflocks", "lockproto=lock_nolock"),
    "ocfs2": ("localflocks",),
}
"""The options with which these file systems keep locks on the host."""
_NONE = frozenset(("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.goofys"))
"""These are shared by hosts, and know no locks: the kernel keeps them on the host."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A file system, where it is mounted, and how."""

    point: Path
    kind: str
    options: tuple[str, ...]

    @property
    def local_locks(self) -> str:
        """What makes its locks hold on this host alone; empty if nothing is known to.

        >>> Mount(Path("/state"), "nfs", ("rw", "vers=3", "nolock")).local_locks
        'nfs with nolock'
        >>> Mount(Path("/state"), "nfs4", ("rw", "local_lock=none")).local_locks
        ''
        """
        if self.kind in _NONE:
            return self.kind
        named = (each for each in self.options if each in _LOCAL.get(self.kind, ()))
        return next((f"{self.kind} with {option}" for option in named), "")


def mount_of(path: Path, lines: Iterable[str]) -> Mount | None:
    """The mount that a path without links lies in, by the lines of the kernel's table.

    >>> lines = ["/dev/sda1 / ext4 rw 0 0", r"host:/a /mnt/my\\040state nfs4 rw,hard 0 0"]
    >>> mount_of(Path("/mnt/my state/app"), lines)
    Mount(point=PosixPath('/mnt/my state'), kind='nfs4', options=('rw', 'hard'))
    """
    found: Mount | None = None
    for line in lines:
        fields = line.split()
        if len(fields) < 4:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        # Of two at one place the later hides the earlier.
        if path.is_relative_to(point) and (found is None or point.is_relative_to(found.point)):
            found = Mount(point, fields[2], tuple(fields[3].split(",")))
    return found


def read_mount(path: Path) -> Mount | None:
    """The mount of a path; None where the system does not tell."""
    try:
        text = MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    return mount_of(path.resolve(), text.splitlines())
