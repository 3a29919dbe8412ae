"""The partition spec of global deletes, which apply to all partitions of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.errors import ConflictError
from delvec.iceberg.commits.attempts import committed

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["with_unpartitioned_spec"]

_ATTEMPTS: Final = 20


def with_unpartitioned_spec(table: LoadedTable) -> tuple[LoadedTable, int]:
    """Return a table and the partition spec of its global deletes, which apply to all partitions.

    A partitioned table gets a second spec without fields, once; its default spec stays. (The spec
    of id 0 is no such spec there, it is the partitioned one.)

    Raises:
        ConflictError: Others committed to the table at the same time, again and again.
    """
    found = _unpartitioned(table.metadata)
    if found is not None:
        return table, found

    def spec(base: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        if _unpartitioned(base.metadata) is None:
            update = transaction.updateSpec()
            for field in base.metadata.spec["fields"]:
                update = update.removeField(field["name"])
            update.addNonDefaultSpec().commit()

    newest = committed(table, _ATTEMPTS, spec).table
    added = _unpartitioned(newest.metadata)
    if added is None:
        raise ConflictError(f"{table.name} has lost its unpartitioned spec: somebody removed it")
    return newest, added


def _unpartitioned(metadata: TableMetadata) -> int | None:
    """Return the id of a spec without fields, or with fields that are void."""
    for spec in (metadata.spec, *metadata.specs.values()):
        if all(field["transform"] == "void" for field in spec["fields"]):
            found: int = spec["spec-id"]
            return found
    return None
