"""Who reads whose deletes: docs/compatibility.md says what is so."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import deltalake
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from tests.interop.conversion_targets import static_table
from tests.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def cells(text: str) -> list[str]:
    """The rows of the matrix: versions may be newer than those that the page was written with."""
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_matrix_in_the_docs_is_what_the_engines_do(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    matrix = shown_matrix(spark, written_tables(spark, tmp_path))
    assert "WRONG" not in matrix
    page = PAGE.read_text()
    if os.environ.get("DELVEC_MATRIX") == "write":
        PAGE.write_text(with_matrix(page, matrix))
    else:
        wanted = cells(with_matrix(page, matrix))
        assert wanted == cells(page), "`make compatibility-table` writes what they do now"


PAGE: Final = ROOT / "docs" / "compatibility.md"
_PLACE: Final = re.compile(r"(<!-- matrix: begin[^\n]*-->\n).*(<!-- matrix: end -->)", re.DOTALL)
_DASH: Final = "\N{EN DASH}"
_IDS: Final = frozenset(range(1000))
_KEPT: Final = frozenset(each for each in _IDS if each % 7)

Reader = Callable[[Any, Any], "list[int]"]


def _by_sql(_: SparkSession, path: Path) -> list[int]:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
    return [row["id"] for batch in query.execute("SELECT id FROM t") for row in _rows(batch)]


def _rows(batch: Any) -> list[dict[str, int]]:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415

    found: list[dict[str, int]] = pa.record_batch(batch).to_pylist()
    return found


def _by_polars(_: SparkSession, path: Path) -> list[int]:
    import polars as pl  # noqa: PLC0415

    found: list[int] = pl.read_delta(str(path))["id"].to_list()
    return found


def _ids(frame: Any) -> list[int]:  # noqa: ANN401
    return [row["id"] for row in frame.select("id").collect()]


_DELTA: Final[dict[str, Reader]] = {
    "delvec on Spark": lambda spark, path: _ids(delvec.DeltaTable.for_path(spark, path).to_df()),
    "delvec, no JVM": lambda _, path: (
        delvec.DeltaTable.for_path(None, path).to_arrow()["id"].to_pylist()
    ),
    "delta-spark": lambda spark, path: _ids(spark.read.format("delta").load(str(path))),
    "deltalake, SQL": _by_sql,
    "deltalake, `to_pyarrow_table`": lambda _, path: (
        deltalake.DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()
    ),
    "Polars": _by_polars,
}
_ICEBERG: Final[dict[str, Reader]] = {
    "delvec on Spark": lambda spark, name: _ids(delvec.IcebergTable.for_name(spark, name).to_df()),
    "Iceberg for Spark": lambda spark, name: _ids(spark.table(name)),
    "PyIceberg": lambda spark, name: static_table(spark, name).scan().to_arrow()["id"].to_pylist(),
}
READERS: Final = tuple(dict.fromkeys([*_DELTA, *_ICEBERG]))


def written_tables(spark: SparkSession, folder: Path) -> dict[str, tuple[str, Any]]:
    """Write the tables; return for each its format and its path or name.

    All hold the ids below 1,000 that 7 does not divide; the others were deleted.
    """
    rows = spark.range(0, 1000, 1, 2)
    ours = delvec.DeltaTable.create(spark, folder / "delvec", "id long")
    ours.append(rows)
    ours.delete("id % 7 = 0")

    setting = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    for name in ("spark", "both"):
        spark.sql(f"CREATE TABLE delta.`{folder / name}` (id BIGINT) USING delta {setting}")
        rows.write.format("delta").mode("append").save(str(folder / name))
    spark.sql(f"DELETE FROM delta.`{folder / 'spark'}` WHERE id % 7 = 0")
    delvec.DeltaTable.for_path(spark, folder / "both").delete("id % 14 = 0")
    spark.sql(f"DELETE FROM delta.`{folder / 'both'}` WHERE id % 7 = 0")

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.matrix")
    delvec.convert(spark, folder / "both", "lake.matrix.converted")
    delvec.convert(spark, folder / "both", "lake.matrix.converted_2", format_version=2)
    delvec.convert(spark, folder / "both", "lake.matrix.referenced", vectors="reference")
    for name in ("stock", "positions", "keys", "resolved"):
        spark.sql(
            f"CREATE TABLE lake.matrix.{name} (id BIGINT) USING iceberg TBLPROPERTIES"
            " ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        rows.writeTo(f"lake.matrix.{name}").append()
    spark.sql("DELETE FROM lake.matrix.stock WHERE id % 7 = 0")
    delvec.IcebergTable.for_name(spark, "lake.matrix.positions").delete("id % 7 = 0")
    for name in ("keys", "resolved"):
        table = delvec.IcebergTable.for_name(spark, f"lake.matrix.{name}")
        table.delete_keys(range(0, 1000, 7), "id")
    table.resolve()
    return {
        "Delta: vectors by delvec": ("delta", folder / "delvec"),
        "Delta: vectors by delta-spark": ("delta", folder / "spark"),
        "Delta: vectors by both in turn": ("delta", folder / "both"),
        "Iceberg 3: converted": ("iceberg", "lake.matrix.converted"),
        "Iceberg 2: converted": ("iceberg", "lake.matrix.converted_2"),
        "Iceberg 3: converted, by reference": ("iceberg", "lake.matrix.referenced"),
        "Iceberg 3: vectors by Iceberg for Spark": ("iceberg", "lake.matrix.stock"),
        "Iceberg 3: vectors by delvec's `delete`": ("iceberg", "lake.matrix.positions"),
        "Iceberg 3: deletes by key by delvec": ("iceberg", "lake.matrix.keys"),
        "Iceberg 3: the same, resolved": ("iceberg", "lake.matrix.resolved"),
    }


def shown_matrix(spark: SparkSession, tables: dict[str, tuple[str, Any]]) -> str:
    """Read each table with each reader, and return the table of it in Markdown."""
    lines = ["| written | " + " | ".join(READERS) + " |", "|---|" + "---|" * len(READERS)]
    for title, (kind, place) in tables.items():
        readers = _DELTA if kind == "delta" else _ICEBERG
        cells = [
            _cell(spark, readers[each], place) if each in readers else _DASH for each in READERS
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    packages = ("deltalake", "polars", "pyiceberg")
    versions = [f"{name} {metadata.version(name)}" for name in packages]
    runtime = iceberg_coordinate().removeprefix("org.apache.iceberg:")
    lines += ["", f"Versions: delta-spark 4.4.0, {runtime}, {', '.join(versions)}."]
    return "\n".join(lines) + "\n"


def _cell(spark: SparkSession, reader: Reader, place: object) -> str:
    try:
        found = reader(spark, place)
    except Exception:  # noqa: BLE001 - each reader has errors of its own
        return "refuses"
    return "reads" if sorted(found) == sorted(_KEPT) else "**WRONG ROWS**"


def with_matrix(page: str, matrix: str) -> str:
    """Return a page with another matrix between its marks."""
    assert _PLACE.search(page), "the page has no place for the matrix"
    return _PLACE.sub(lambda match: f"{match[1]}\n{matrix}\n{match[2]}", page)
