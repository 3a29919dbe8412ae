"""What tests of checks share: a table of one file with any vector, and short forms of findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from delvec import DeltaTable
from delvec.delta.check.report import CheckReport
from delvec.storage import Storage
from tests.delta import builder
from tests.delta.builder import TableBuilder, removed

INLINE, PADDED = builder.INLINE, builder.PADDED


def opened(root: Path) -> DeltaTable:
    """A handle on a table whose log may be too damaged to be opened."""
    return DeltaTable(Storage.open(root))


def odd_vector(table: TableBuilder, form: str) -> dict[str, Any]:
    """Write a vector for row 3 in a form that other engines trip over."""
    if form in ("inline", "padded"):
        return INLINE if form == "inline" else PADDED
    [vector] = table.write_vectors([3])
    if form == "absolute":
        return vector | {"storageType": "p", "pathOrInlineDv": table.vector_path().as_uri()}
    return {name: value for name, value in vector.items() if name != "offset"}


def checked(root: Path, **options: Any) -> CheckReport:  # noqa: ANN401
    return opened(root).check(**options)


def found(report: CheckReport) -> list[tuple[str, str, str]]:
    return sorted((each.severity, each.kind, each.path) for each in report.findings)


def table_with(
    root: Path,
    vector: dict[str, Any] | list[int],
    *,
    stats: dict[str, Any] | None = None,
    table: TableBuilder | None = None,
) -> TableBuilder:
    """Make a table of one file with the ids 0 to 9, and a vector: any descriptor, or rows."""
    table = table or TableBuilder(root)
    table.create()
    add = table.append("part-0.parquet", {"id": range(10)})
    descriptor = table.write_vectors(vector)[0] if isinstance(vector, list) else vector
    text = json.dumps({"numRecords": 10, "tightBounds": False} if stats is None else stats)
    new = add | {"deletionVector": descriptor, "stats": text}
    table.commit({"remove": removed(add)}, {"add": new})
    return table
