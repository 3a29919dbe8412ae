"""The fence: which paths outside of its own folder a table may lead to."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from delvec.errors import FormatError, InvalidArgumentError
from delvec.storage.location import Location, locate

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ALLOWED_PATHS", "Fence", "lists_of"]

ALLOWED_PATHS: Final = "spark.delvec.allowedPaths"
"""The setting of a session: prefixes, with commas between them."""

_SHOWN: Final = 200


@dataclass(frozen=True)
class Fence:
    """What a table may lead to: its own folder, and what all of the lists allow.

    Attributes:
        home: The table's own folder.
        lists: Lists of prefixes, the session's, and that of an argument, which can only narrow it.
    """

    home: Location
    lists: tuple[tuple[Location, ...], ...]

    @classmethod
    def around(cls, home: Location, *given: Sequence[str] | str | None) -> Fence | None:
        """Return the fence of lists of prefixes, each a path or URI; None if none is given.

        Raises:
            InvalidArgumentError: A prefix is relative, or on no store that delvec knows.
        """
        lists = [[each] if isinstance(each, str) else each for each in given if each is not None]
        return cls(home, tuple(tuple(map(_prefix, each)) for each in lists)) if lists else None

    @property
    def text(self) -> str:
        """The fence as text, for processes that get options of Spark; see `lists_of`."""
        return json.dumps([[each.root for each in prefixes] for prefixes in self.lists])

    @cached_property
    def _folders(self) -> tuple[tuple[str, ...], ...]:
        """The table's folder, and the prefixes of each list, where links of theirs lead."""
        return tuple(
            tuple(f"{_real(each)}/" for each in folders) for folders in ((self.home,), *self.lists)
        )

    def require(self, location: Location) -> None:
        """Refuse a place outside; links on local disks are followed, as its readers will.

        Raises:
            FormatError: It is neither below the table nor allowed.
        """
        # With the slash, so that whole segments are compared: `/lake/ab` is not below `/lake/a`.
        name = f"{_real(location)}/"
        own, *lists = self._folders
        if name.startswith(own):
            return
        for prefixes, folders in zip(self.lists, lists, strict=True):
            if not name.startswith(folders):
                listed = ", ".join(each.root for each in prefixes) or "none"
                link = "" if name == f"{location.name}/" else f", a link to {name[:-1]!r:.{_SHOWN}}"
                raise FormatError(
                    "the table leads out of its folder, to a path that is not allowed",
                    path=self.home.root,
                    expected=f"a path below it, or below one that is allowed ({listed:.{_SHOWN}})",
                    found=f"{location.root!r:.{_SHOWN}}{link}",
                    hint=f"if it may be read, add its folder to {ALLOWED_PATHS} of the session, or"
                    " to allow_paths=[...]",
                )


def lists_of(text: str | None) -> list[list[str]]:
    """Return lists of prefixes of an option of Spark: what `Fence.text` returns, or prefixes.

    >>> lists_of("/lake/shared, s3://bucket/x"), lists_of('[["/lake"], []]'), lists_of(None)
    ([['/lake/shared', 's3://bucket/x']], [['/lake'], []], [])
    """
    if text is None:
        return []
    if not text.startswith("["):
        return [[each.strip() for each in text.split(",") if each.strip()]]
    try:
        found: list[list[str]] = json.loads(text)
    except (ValueError, RecursionError):
        found = [[text]]  # no absolute path either, which the fence tells
    return found


def _prefix(given: str) -> Location:
    text = given.strip()
    if not text.startswith("/") and ":/" not in text:
        raise InvalidArgumentError(
            f"{given!r} cannot be allowed: it is not an absolute path",
            hint=f"write {ALLOWED_PATHS} and allow_paths as /lake/shared, or s3://bucket/folder",
        )
    return locate(text)


def _real(location: Location) -> str:
    """Return the name of a location; of a local one, where its links lead."""
    if location.scheme != "file":
        return location.name
    return location._replace(path=os.path.realpath(location.path)).name
