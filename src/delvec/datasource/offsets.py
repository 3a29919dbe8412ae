"""How far a stream has read, as Spark keeps it in the checkpoint: JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from delvec.errors import FormatError, InvalidArgumentError

__all__ = ["INITIAL", "Offset", "beginning"]


@dataclass(frozen=True)
class Offset:
    """The end of a batch: all of a version is read, and maybe some files of what follows.

    Spark asks for the beginning of a stream again if its first batch has to be repeated. So the
    beginning is the same for all streams, and the end of the first batch says where it began.

    Attributes:
        version: The last version that is read; -1 before the first batch.
        table: The id of the table, by which one that replaced it is known.
        since: In the end of the first batch, the version where the stream began.
        snapshot: Whether it began with all rows of that version, and not with its changes. Both
            are kept while these rows are being read, with a version before `since`.
        files: How many files are read of the rows at the beginning, or else of the next version;
            in the order of `stream_plan.initial_order` and of their paths.
    """

    version: int
    table: str | None = None
    since: int | None = None
    snapshot: bool = False
    files: int = 0

    @property
    def in_snapshot(self) -> bool:
        """Whether the rows at the beginning are not yet read completely."""
        return self.snapshot and self.since is not None and self.version < self.since

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in the checkpoint.

        >>> Offset(7, "5f3a", since=7, snapshot=True).to_json()
        {'table': '5f3a', 'version': 7, 'since': 7, 'snapshot': True}
        >>> Offset(7, "5f3a", files=3).to_json()
        {'table': '5f3a', 'version': 7, 'files': 3}
        """
        if self == INITIAL:
            return {"version": -1}
        value: dict[str, Any] = {"table": self.table, "version": self.version}
        if self.since is not None:
            value |= {"since": self.since, "snapshot": self.snapshot}
        if self.files:
            value["files"] = self.files
        return value

    @classmethod
    def from_json(cls, value: Any) -> Offset:  # noqa: ANN401 - whatever the checkpoint has
        """Read an offset of the checkpoint.

        Raises:
            FormatError: It is not one of this source.
        """
        found = value if isinstance(value, dict) else {}
        version, table = found.get("version"), found.get("table")
        since, files = found.get("since"), found.get("files", 0)
        numbers = (version, 0 if since is None else since, files)
        if not all(type(each) is int for each in numbers) or not isinstance(table, str | None):
            raise FormatError(
                "the checkpoint holds an offset of another source",
                expected='such as {"table": "...", "version": 7}',
                found=repr(value)[:200],
                hint="begin anew with another checkpointLocation",
            )
        return cls(int(version or 0), table, since, bool(found.get("snapshot")), files)


INITIAL: Final = Offset(-1)
"""The beginning of every stream."""


def beginning(stop: Offset) -> Offset:
    """Return where the first batch begins, which its end tells.

    Raises:
        InvalidArgumentError: It does not.
    """
    if stop.since is None:
        raise InvalidArgumentError(
            "the checkpoint does not say where the stream began",
            hint="begin anew with another checkpointLocation",
        )
    if stop.snapshot:
        return Offset(-1, stop.table, stop.since, snapshot=True)
    return Offset(stop.since - 1, stop.table)
