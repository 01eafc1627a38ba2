"""Whose locks hold on one host alone, by what the kernel says of a path's file system.

A lock on a network volume that is kept on the host excludes that host's processes, so that trying
it out shows nothing: another host gets it, too. Some mounts say so, and of some kinds it is known.
Of others it is not: whoever runs the application knows whether another machine uses the volume.
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
    "afs": ("flock=local",),
    "pvfs2": ("local_lock",),
}
"""The options with which these file systems keep locks on the host."""
_BUCKETS = (
    *("s3fs", "gcsfuse", "goofys", "geesefs", "mount-s3", "mountpoint-s3", "blobfuse", "blobfuse2"),
    *("ossfs", "cosfs", "obsfs"),
)
_NONE = frozenset(
    f"fuse.{name}" for name in (*_BUCKETS, "sshfs", "curlftpfs", "rclone", "fuse_dfs")
)
"""These are shared by hosts, and know no locks: the kernel keeps them on the host."""
_SOUND = frozenset(
    f"fuse.{name}"
    for name in ("ceph", "ceph-fuse", "glusterfs", "juicefs", "mfs", "fuse-overlayfs")
)
"""Their servers keep locks for all hosts; or they are on a disk of this one."""
_SHARED = frozenset(("virtiofs", "vboxsf", "vmhgfs", "prl_fs", "beegfs"))
"""A machine's directories that it shares with its guests, which each keep locks for themselves, as
a rule; and volumes that may be set to do so without the mount saying so."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A file system, where it is mounted, and how."""

    point: Path
    kind: str
    options: tuple[str, ...]
    source: str = ""
    """What is mounted: a device, a server's directory, or only a name."""

    @property
    def local_locks(self) -> str:
        """What makes its locks hold on this host alone; empty if nothing is known to.

        >>> Mount(Path("/state"), "nfs", ("rw", "vers=3", "nolock")).local_locks
        'nfs with nolock'
        >>> Mount(Path("/state"), "nfs4", ("rw", "local_lock=none")).local_locks
        ''
        """
        if self._name in _NONE:
            return self._name
        named = (each for each in self.options if each in _LOCAL.get(self.kind, ()))
        return next((f"{self.kind} with {option}" for option in named), "")

    @property
    def doubtful_locks(self) -> str:
        """What may make its locks hold on this host alone; empty if there is no reason to think so.

        >>> Mount(Path("/state"), "fuse.somefs", ("rw",)).doubtful_locks
        'fuse.somefs'
        >>> Mount(Path("/state"), "fuse.glusterfs", ("rw",)).doubtful_locks
        ''
        """
        user_space = self._name.startswith("fuse.") and self._name not in _SOUND
        # Over a descriptor it is a container's own, or a machine's part of the same machine.
        plan_9 = self.kind == "9p" and "trans=fd" not in self.options
        doubtful = user_space or plan_9 or self.kind in _SHARED
        # Not what is mounted: an address may have a password in it.
        return self.kind if doubtful and not self.local_locks else ""

    @property
    def _name(self) -> str:
        """The kind; some programs give their name as what is mounted instead."""
        return f"fuse.{self.source}" if self.kind == "fuse" else self.kind


def mount_of(path: Path, lines: Iterable[str]) -> Mount | None:
    """The mount that a path without links lies in, by the lines of the kernel's table.

    >>> lines = ["/dev/sda1 / ext4 rw 0 0", r"host:/a /mnt/my\\040state nfs4 rw,hard 0 0"]
    >>> mount_of(Path("/mnt/my state/app"), lines)
    Mount(point=PosixPath('/mnt/my state'), kind='nfs4', options=('rw', 'hard'), source='host:/a')
    """
    found: Mount | None = None
    for line in lines:
        fields = line.split()
        if len(fields) < 4:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        # Of two at one place the later hides the earlier.
        if path.is_relative_to(point) and (found is None or point.is_relative_to(found.point)):
            found = Mount(point, fields[2], tuple(fields[3].split(",")), fields[0])
    return found


def read_mount(path: Path) -> Mount | None:
    """The mount of a path; None where the system does not tell."""
    try:
        text = MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    return mount_of(path.resolve(), text.splitlines())
