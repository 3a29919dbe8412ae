"""How far a target is: which version of the source its snapshots hold.

The summaries of the snapshots are the truth, so a rollback of the target also resets its progress.
It is counted in versions, not in timestamps: two commits in one millisecond or a clock that went
back make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delvec.conversion.planning.commit_facts import CommitFacts
    from delvec.delta.schema.metadata import Metadata
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = [
    "NAME_MAPPING",
    "SOURCE",
    "SOURCE_ID",
    "SOURCE_VERSION",
    "TIME_ZONE",
    "Progress",
    "find_progress",
    "snapshot_summary",
    "source_id",
]

NAME_MAPPING: Final = "schema.name-mapping.default"
SOURCE: Final = "delvec.source"
SOURCE_ID: Final = "delvec.source-table-id"
SOURCE_VERSION: Final = "delvec.source-version"
TIME_ZONE: Final = "delvec.time-zone"
"""The zone in which timestamps without one were read: partition values must stay what they were."""

_TRANSACTION: Final = "delvec.source-transaction-id"
_LONGEST: Final = 1000  # characters of a summary value, which all later metadata files repeat
_FACTS: Final = {
    "delvec.source-timestamp": "timestamp_ms",
    "delvec.source-operation": "operation",
    "delvec.source-operation-parameters": "operation_parameters",
    "delvec.source-user-metadata": "user_metadata",
    "delvec.source-engine": "engine_info",
    _TRANSACTION: "transaction_id",
}


@dataclass(frozen=True)
class Progress:
    """The newest snapshot of a target that a conversion made.

    Attributes:
        version: The version of the source that it holds.
        source: Where the source was then, which determines the paths of data files.
        snapshot: The snapshot.
        transaction_id: The `txnId` of the source's commit, if it had one.
        is_head: Whether it is the current snapshot.
    """

    version: int
    source: str | None
    snapshot: IcebergSnapshot
    transaction_id: str | None
    is_head: bool


def source_id(metadata: Metadata, root: str) -> str:
    """Return what identifies a Delta table: its id, which it keeps when it is moved."""
    return metadata.id or root


def find_progress(target: TableMetadata) -> Progress | None:
    """Return how far the target's main branch is; None if no snapshot records it."""
    owner = target.properties.get(SOURCE_ID)
    for depth, snapshot in enumerate(target.ancestors()):
        version = snapshot.count(SOURCE_VERSION)
        if version is not None and snapshot.summary.get(SOURCE_ID) == owner:
            source, transaction = map(snapshot.summary.get, (SOURCE, _TRANSACTION))
            return Progress(version, source, snapshot, transaction, depth == 0)
    return None


def snapshot_summary(
    facts: CommitFacts, metadata: Metadata, root: str, mode: str
) -> dict[str, str]:
    """Return the summary entries of a snapshot: the version that it holds, and its commit."""
    summary = {
        SOURCE: root,
        SOURCE_ID: source_id(metadata, root),
        SOURCE_VERSION: str(facts.version),
        "delvec.mode": mode,
    }
    for key, name in _FACTS.items():
        value = getattr(facts, name)
        if value is not None:
            summary[key] = str(value)[:_LONGEST]
    return summary
