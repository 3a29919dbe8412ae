"""`delvec files`: the data files of a table, and how many rows of each are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np
import pyarrow.compute as pc

from delvec.cli.iceberg_files import show_iceberg_files
from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    catalog_options,
    limit_option,
    storage_options,
    table_argument,
    version_options,
)
from delvec.cli.output import Column, JsonOutput, used_columns, visible
from delvec.cli.ref_changes import snapshot_option
from delvec.cli.spark_tables import delta_storage, opened_iceberg
from delvec.cli.table_kinds import is_delta, refuse_options
from delvec.delta.log.commit_times import version_at
from delvec.delta.log.files_table import files_table
from delvec.delta.log.snapshot import open_snapshot
from delvec.inspection.columns import partition_word
from delvec.report.figures import bar, counted, percent, size
from delvec.storage.listed_files import is_absolute

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["command"]

_COLUMNS: Final = [
    Column("path", "file", name_width=40),
    Column("partition", "partition", "cyan", name_width=32),
    Column("row_count", "rows"),
    Column("deleted_rows", "deleted", "bold"),
    Column("share", "share", "red", is_unbroken=True, omitted=1),
    Column("vector", "vector", is_unbroken=True, omitted=3),
    Column("size", "size", is_unbroken=True, omitted=2),
]
_WHERE: Final = {"u": "file", "p": "absolute", "i": "inline"}


@delvec_command("files")
@table_argument
@version_options
@click.option("--branch", metavar="NAME", help="Iceberg: the branch; main if absent.")
@snapshot_option("Iceberg: instead, a snapshot by its id.")
@limit_option("Show so many files, 0 for all. JSON holds all of them.")
@storage_options
@catalog_options
def command(  # noqa: PLR0913 - one for each option
    output: Output,
    table: str,
    *,
    version: int | None,
    timestamp: str | None,
    branch: str | None,
    snapshot_id: int | None,
    limit: int,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show the data files of TABLE, those with most deleted rows first.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog, with its delete files.

    \b
    delvec files /lake/orders --limit 0
    delvec files /lake/orders --version 3 --json
    delvec files lake.db.orders --branch changes
    """  # noqa: D301
    if not is_delta(table):
        refuse_options("a Delta table", "--version", "--storage-option")
        which = {"snapshot_id": snapshot_id, "timestamp": timestamp, "branch": branch}
        with opened_iceberg(output, table, iceberg) as (_, target):
            show_iceberg_files(output, target, which, limit)
        return
    refuse_options("an Iceberg table", "--branch", "--snapshot-id")
    with delta_storage(table, options) as storage, output.working("reading the log"):
        if timestamp is not None:
            version = version_at(storage, timestamp)
        snapshot = open_snapshot(storage, version)
    files = snapshot.files
    order = np.lexsort((np.arange(len(files)), -files.deleted_rows))
    total = _total(files)
    if not isinstance(output, JsonOutput):  # for text, only the files shown are listed
        _show(output, snapshot, order[:limit] if limit else order, total)
        return
    output.result(
        {
            "table": snapshot.table,
            "version": snapshot.version,
            "total": total,
            "files": _documents(files, order, statistics=True),
        }
    )


def _total(files: FileSet) -> dict[str, int | None]:
    counts = files.row_counts
    return {
        "files": len(files),
        "bytes": int(files.sizes.sum()),
        "row_count": None if counts.null_count else pc.sum(counts, min_count=0).as_py(),
        "deleted_rows": int(files.deleted_rows.sum()),
        "files_with_vectors": int(files.has_vector.sum()),
        "files_without_row_count": counts.null_count,
    }


def _show(
    output: Output, snapshot: Snapshot, order: np.typing.NDArray[np.int64], total: dict[str, Any]
) -> None:
    output.note((visible(snapshot.table), "bold"), f": version {snapshot.version:,}")
    rows = [_row(file) for file in _documents(snapshot.files, order, statistics=False)]
    width = max((len(row["size"]) for row in rows), default=0)
    for row in rows:
        row["size"] = row["size"].rjust(width)
    if rows:
        output.table(used_columns(_COLUMNS, rows), rows)
    if left := total["files"] - len(rows):
        output.note((f"… and {counted(left, 'file')} more; --limit 0 shows all", "dim"))
    output.note(_sentence(total))
    if missing := total["files_without_row_count"]:
        output.note(
            (f"The log has no statistics of {counted(missing, 'file')}: ", "yellow"),
            "how many rows are in there only the data can tell.",
        )


def _sentence(total: dict[str, Any]) -> str:
    parts = [counted(total["files"], "file"), size(total["bytes"])]
    deleted, vectors = total["deleted_rows"], counted(total["files_with_vectors"], "vector")
    if total["row_count"] is not None:
        parts.append(counted(total["row_count"], "row"))
        if deleted:
            share = percent(deleted, total["row_count"])
            parts.append(f"{deleted:,} of them deleted ({share}) by {vectors}")
    elif deleted:
        parts.append(f"{counted(deleted, 'row')} deleted by {vectors}")
    return ", ".join(parts) + ("" if deleted else "; no row is deleted by a vector")


def _row(file: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a file."""
    rows, deleted, kind = (file[key] for key in ("row_count", "deleted_rows", "vector"))
    values = file["partition_values"].items()
    partition = " ".join(f"{name}={partition_word(text)}" for name, text in values)
    path = file["path"]
    # The folder repeats the partition, and takes space from the file name.
    name = path.rpartition("/")[2] if partition and not is_absolute(path) else path
    return {
        "path": name,
        "partition": partition,
        "row_count": rows,
        "deleted_rows": deleted or None,
        "share": f"{bar(deleted, rows)} {percent(deleted, rows):>7}" if deleted and rows else None,
        "vector": f"{_WHERE.get(kind, kind)} {size(file['vector_bytes'] or 0)}" if kind else None,
        "size": size(file["size"]),
    }


def _documents(
    files: FileSet, order: np.typing.NDArray[np.int64], *, statistics: bool
) -> list[dict[str, Any]]:
    """Return what the log holds about files, in the given order."""
    ascending = np.sort(order)
    chosen, back = files.select(ascending), np.searchsorted(ascending, order)
    documents: list[dict[str, Any]] = (
        files_table(chosen, statistics=statistics).take(back).to_pylist()
    )
    descriptors = chosen.vectors.take(back).to_pylist()
    for document, descriptor in zip(documents, descriptors, strict=True):
        document["partition_values"] = dict(document["partition_values"])
        document["modified"] = document["modified"].isoformat(timespec="milliseconds")
        document["descriptor"] = descriptor
    return documents
