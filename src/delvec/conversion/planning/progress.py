"""How far a target is: which version of the source its snapshots hold.

The snapshot's summary is the truth, so that a rollback of the target takes the state back with it.
Versions are counted, not timed: two commits in one millisecond, or a clock that went back, are
nothing special.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delvec.conversion.planning.source_changes import CommitFacts
    from delvec.delta.schema.metadata import Metadata
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = [
    "NAME_MAPPING",
    "SOURCE",
    "SOURCE_ID",
    "SOURCE_VERSION",
    "TIME_ZONE",
    "Converted",
    "converted",
    "source_id",
    "summary",
]

NAME_MAPPING: Final = "schema.name-mapping.default"
SOURCE: Final = "delvec.source"
SOURCE_ID: Final = "delvec.source-table-id"
SOURCE_VERSION: Final = "delvec.source-version"
TIME_ZONE: Final = "delvec.time-zone"
"""What texts of timestamps without a zone were read in: partitions must stay what they were."""

_TRANSACTION: Final = "delvec.source-transaction-id"
_LONGEST: Final = 1000  # of a text in a summary, which every later commit carries along
_FACTS: Final = {
    "delvec.source-timestamp": "timestamp_ms",
    "delvec.source-operation": "operation",
    "delvec.source-operation-parameters": "operation_parameters",
    "delvec.source-user-metadata": "user_metadata",
    "delvec.source-engine": "engine_info",
    _TRANSACTION: "transaction_id",
}


@dataclass(frozen=True)
class Converted:
    """The newest snapshot of the target that a conversion made.

    Attributes:
        version: Which version of the source it holds.
        source: Where the source was then, which decides the names of files.
        transaction_id: What its commit called itself, if it did.
        is_head: Whether nobody has committed since.
    """

    version: int
    source: str | None
    snapshot: IcebergSnapshot
    transaction_id: str | None
    is_head: bool


def source_id(metadata: Metadata, root: str) -> str:
    """Name a Delta table for good: by its id, which it keeps when it moves."""
    return metadata.id or root


def converted(target: TableMetadata) -> Converted | None:
    """Find how far the target's main branch is; None if no snapshot says so."""
    owner = target.properties.get(SOURCE_ID)
    for depth, snapshot in enumerate(target.ancestors()):
        version = snapshot.summary.get(SOURCE_VERSION, "")
        if version.isdecimal() and snapshot.summary.get(SOURCE_ID) == owner:
            source, transaction = map(snapshot.summary.get, (SOURCE, _TRANSACTION))
            return Converted(int(version), source, snapshot, transaction, depth == 0)
    return None


def summary(facts: CommitFacts, metadata: Metadata, root: str, mode: str) -> dict[str, str]:
    """Give what a snapshot says of the version that it holds."""
    told = {
        SOURCE: root,
        SOURCE_ID: source_id(metadata, root),
        SOURCE_VERSION: str(facts.version),
        "delvec.mode": mode,
    }
    for key, name in _FACTS.items():
        value = getattr(facts, name)
        if value is not None:
            told[key] = str(value)[:_LONGEST]
    return told
