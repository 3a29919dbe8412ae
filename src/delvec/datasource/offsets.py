"""How far a stream has read, as Spark keeps it in the checkpoint: JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from delvec.errors import FormatError

__all__ = ["INITIAL", "Offset"]


@dataclass(frozen=True)
class Offset:
    """The end of a batch: all of a version is read.

    Spark asks for the beginning of a stream again if its first batch has to be repeated. So the
    beginning is the same for all streams, and the end of the first batch says where it began.

    Attributes:
        version: The last version that is read; -1 before the first batch.
        table: The id of the table, by which one that replaced it is known.
        since: In the end of the first batch, the version where the stream began.
        snapshot: Whether it began with all rows of that version, and not with its changes.
    """

    version: int
    table: str | None = None
    since: int | None = None
    snapshot: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in the checkpoint.

        >>> Offset(7, "5f3a", since=7, snapshot=True).to_json()
        {'table': '5f3a', 'version': 7, 'since': 7, 'snapshot': True}
        """
        if self == INITIAL:
            return {"version": -1}
        value: dict[str, Any] = {"table": self.table, "version": self.version}
        if self.since is not None:
            value |= {"since": self.since, "snapshot": self.snapshot}
        return value

    @classmethod
    def from_json(cls, value: Any) -> Offset:  # noqa: ANN401 - whatever the checkpoint has
        """Read an offset of the checkpoint.

        Raises:
            FormatError: It is not one of this source.
        """
        version = value.get("version") if isinstance(value, dict) else None
        if type(version) is not int:
            raise FormatError(
                "the checkpoint holds an offset of another source",
                expected='such as {"table": "...", "version": 7}',
                found=repr(value)[:200],
                hint="begin anew with another checkpointLocation",
            )
        return cls(version, value.get("table"), value.get("since"), bool(value.get("snapshot")))


INITIAL: Final = Offset(-1)
"""The beginning of every stream."""
