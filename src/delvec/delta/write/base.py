"""The version of a table that a commit is based on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.segment import commit_key
from delvec.delta.schema.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from delvec.delta.write.row_ids import ROW_TRACKING_DOMAIN, high_water_mark
from delvec.documents import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.delta.write.conflicts import Winner
    from delvec.storage import Storage

__all__ = ["Base"]


@dataclass(frozen=True)
class Base:
    """A version of a table, or -1 before it is created, and what the next commit needs of it.

    Attributes:
        storage: The table.
        version: The version.
        protocol: Its protocol.
        metadata: Its metadata.
        row_id_mark: The high-water mark of row ids.
        timestamp_ms: Its in-commit timestamp; 0 if the table has none.
    """

    storage: Storage
    version: int
    protocol: Protocol
    metadata: Metadata
    row_id_mark: int = -1
    timestamp_ms: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> Base:
        """Return a snapshot as a base; reads its commit if that has an in-commit timestamp."""
        storage, version = snapshot.storage, snapshot.version
        mark = high_water_mark(snapshot.domains.get(ROW_TRACKING_DOMAIN))
        timestamp = 0
        if snapshot.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
            key = commit_key(version)
            timestamp = _timestamp(JsonActions(storage.uri_of(key), storage.read(key)).others())
        return cls(storage, version, snapshot.protocol, snapshot.metadata, mark, timestamp)

    def after(self, winner: Winner) -> Base:
        """Return the next version, which another writer committed with the same metadata."""
        marks = [
            high_water_mark(domain.get("configuration"))
            for action in winner.others
            if (domain := action.get("domainMetadata"))
            and domain.get("domain") == ROW_TRACKING_DOMAIN
        ]
        return replace(
            self,
            version=winner.version,
            row_id_mark=max([self.row_id_mark, *marks]),
            timestamp_ms=max(self.timestamp_ms, _timestamp(winner.others)),
        )


def _timestamp(actions: Iterable[dict[str, Any]]) -> int:
    """Return the in-commit timestamp of a commit; 0 if it has none."""
    infos = (action["commitInfo"] for action in actions if action.get("commitInfo"))
    info: dict[str, Any] = next(infos, {})
    value = info.get("inCommitTimestamp")
    return value if type(value) is int and 0 <= value <= LONG_MAX else 0
