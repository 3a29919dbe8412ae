"""Tables that look as if they were written long ago, and what is in their folders."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

DAY = 86_400


def age(root: Path, days: float, *, log: bool = False) -> None:
    """Date all files back; those of the log only if asked for."""
    moment = time.time() - days * DAY
    for path in root.rglob("*"):
        if path.is_file() and (log or "_delta_log" not in path.relative_to(root).parts):
            os.utime(path, (moment, moment))


def days_ago(days: float) -> int:
    """A time in milliseconds."""
    return int((time.time() - days * DAY) * 1000)


def tombstone(add: dict[str, Any], days: float | None) -> dict[str, Any]:
    """The action that removes a file so many days ago; None leaves the time out."""
    kept = {
        name: add[name] for name in ("path", "deletionVector", "partitionValues") if name in add
    }
    when = {} if days is None else {"deletionTimestamp": days_ago(days)}
    return {"remove": kept | when | {"dataChange": True}}


def files_of(root: Path) -> set[str]:
    """All files and links below a folder, without those of the log."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if (path.is_file() or path.is_symlink()) and path.relative_to(root).parts[0] != "_delta_log"
    }
