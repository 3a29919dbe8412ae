"""`delvec files`: the data files of a table, and what deletes rows of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from delvec.cli.options import ICEBERG_BRANCH, STORAGE, VERSION, limit, snapshot
from delvec.cli.tables import either, table_command
from delvec.cli.terminal import Column
from delvec.delta.log.snapshot import files_table
from delvec.delta.table import DeltaTable
from delvec.inspection.ranking import partition_word
from delvec.report.format import bar, escape_controls, format_count, format_size, percent
from delvec.storage.backend import is_absolute

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.log.file_set import FileSet
    from delvec.iceberg.table import IcebergTable

_COLUMNS: Final = [
    Column("path", "file", name_width=40),
    Column("partition", "partition", "cyan", name_width=32),
    Column("row_count", "rows"),
    Column("deleted_rows", "deleted", "bold"),
    Column("share", "share", "red", is_unbroken=True, omitted=1),
    Column("vector", "vector", is_unbroken=True, omitted=3),
    Column("size", "size", is_unbroken=True, is_right=True, omitted=2),
]
_WHERE: Final = {"u": "file", "p": "absolute", "i": "inline"}
_ICEBERG_COLUMNS: Final = [
    Column("path", "file", name_width=40),
    Column("content", "content", "cyan"),
    Column("partition", "partition", "cyan", name_width=32, omitted=2),
    Column("rows", "rows or keys"),
    Column("size", "size", is_unbroken=True, is_right=True, omitted=1),
]
# The files that rows are in first, then what deletes some of them.
_ORDER: Final = ("data", "deletion-vector", "position-deletes", "equality-deletes")


@table_command(
    "files",
    either("", "--branch --snapshot-id"),
    VERSION,
    ICEBERG_BRANCH,
    snapshot("Iceberg: instead, a snapshot by its id."),
    limit("Show so many files, 0 for all. JSON holds all of them."),
    STORAGE,
)
def files(output: Output, table: DeltaTable | IcebergTable, *, limit: int, **which: Any) -> None:
    """Show the data files of TABLE, those with most deleted rows first.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog, with its delete files.

    \b
    delvec files /lake/orders --limit 0
    delvec files /lake/orders --version 3 --json
    delvec files lake.db.orders --branch changes
    """
    if not isinstance(table, DeltaTable):
        _show_iceberg(output, table, which, limit)
        return
    snapshot = table.snapshot(**which)
    files = snapshot.files
    order = np.lexsort((np.arange(len(files)), -files.deleted_rows))
    total = _total(files)
    if output.as_json:
        documents = _documents(files, order, statistics=True)
        facts = {"table": snapshot.table, "version": snapshot.version}
        output.result({**facts, "total": total, "files": documents})
        return
    output.note((escape_controls(snapshot.table), "bold"), f": version {snapshot.version:,}")
    # For text, only the files shown are listed.
    shown = _documents(files, order[:limit] if limit else order, statistics=False)
    output.listing(_COLUMNS, [_row(file) for file in shown], len(files))
    output.note(_sentence(total))
    if missing := total["files_without_row_count"]:
        output.note(
            (f"The log has no statistics of {format_count(missing, 'file')}: ", "yellow"),
            "how many rows are in there only the data can tell.",
        )


def _show_iceberg(
    output: Output, target: IcebergTable, which: Mapping[str, Any], limit: int
) -> None:
    found = [each.asDict(recursive=True) for each in target.files(**which).collect()]
    found.sort(key=_order)
    output.note((escape_controls(target.name), "bold"), f": {_iceberg_sentence(found)}")
    rows = [_iceberg_row(each) for each in (found[:limit] if limit else found)]
    output.listing(_ICEBERG_COLUMNS, rows, len(found))
    facts = {"snapshot_id": None, "timestamp": None, "branch": None, **which}
    output.result({"table": target.name, **facts, "files": found})


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


def _sentence(total: dict[str, Any]) -> str:
    parts = [format_count(total["files"], "file"), format_size(total["bytes"])]
    deleted, vectors = total["deleted_rows"], format_count(total["files_with_vectors"], "vector")
    if total["row_count"] is not None:
        parts.append(format_count(total["row_count"], "row"))
        if deleted:
            share = percent(deleted, total["row_count"])
            parts.append(f"{deleted:,} of them deleted ({share}) by {vectors}")
    elif deleted:
        parts.append(f"{format_count(deleted, 'row')} deleted by {vectors}")
    return ", ".join(parts) + ("" if deleted else "; no row is deleted by a vector")


def _row(file: dict[str, Any]) -> dict[str, Any]:
    rows, deleted, kind = (file[key] for key in ("row_count", "deleted_rows", "vector"))
    values = file["partition_values"].items()
    partition = " ".join(f"{name}={partition_word(text)}" for name, text in values)
    path = file["path"]
    # The folder repeats the partition, and takes space from the file name.
    name = path.rpartition("/")[2] if partition and not is_absolute(path) else path
    vector = f"{_WHERE.get(kind, kind)} {format_size(file['vector_bytes'] or 0)}"
    return {
        "path": name,
        "partition": partition,
        "row_count": rows,
        "deleted_rows": deleted or None,
        "share": f"{bar(deleted, rows)} {percent(deleted, rows):>7}" if deleted and rows else None,
        "vector": vector if kind else None,
        "size": format_size(file["size"]),
    }


def _documents(
    files: FileSet, order: np.typing.NDArray[np.int64], *, statistics: bool
) -> list[dict[str, Any]]:
    ascending = np.sort(order)
    chosen, back = files.select(ascending), np.searchsorted(ascending, order)
    table = files_table(chosen, statistics=statistics).take(back)
    documents: list[dict[str, Any]] = table.to_pylist()
    descriptors = chosen.vectors.take(back).to_pylist()
    for document, descriptor in zip(documents, descriptors, strict=True):
        document["partition_values"] = dict(document["partition_values"])
        document["modified"] = document["modified"].isoformat(timespec="milliseconds")
        document["descriptor"] = descriptor
    return documents


def _order(file: Mapping[str, Any]) -> tuple[Any, ...]:
    content = file["content"]
    place = _ORDER.index(content) if content in _ORDER else len(_ORDER)
    return place, -file["rows"], file["sequence_number"], file["path"]


def _iceberg_sentence(files: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter(each["content"] for each in files)
    rows = sum(each["rows"] for each in files if each["content"] == "data")
    parts = [
        f"{format_count(kinds.pop('data', 0), 'data file')} with {format_count(rows, 'row')}",
        *(f"{count:,} {kind}" for kind, count in sorted(kinds.items())),
    ]
    return ", ".join([*parts, format_size(sum(each["bytes"] for each in files))])


def _iceberg_row(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table row of a file; its folder repeats that of the table."""
    values = file["partition"].items()
    return {
        "path": file["path"].rpartition("/")[2],
        "content": file["content"],
        "partition": " ".join(f"{name}={partition_word(text)}" for name, text in values),
        "rows": file["rows"],
        "size": format_size(file["bytes"]),
    }
