"""The commands of docs/conversion.md, run in their order, print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from delvec import DeltaTable, IcebergTable, convert
from delvec.cli import main
from tests.docs.pages import blocks
from tests.docs.test_examples import DOCS, write_demo

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCE: Final = "/lake/orders"
TARGETS: Final = ("lake.db.orders", "lake.db.history")
# Ids of vectors and snapshots, names of files, times, and sizes, which depend on versions.
CHANGING: Final = re.compile(
    r"\S*…\S*|\S*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\S*|\b\d{4}-\d\d-\d\d \d\d:\d\d\b"
    r"|\b\d+(\.\d+)? (B|KiB)|[─╌]+"
)


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    write_demo(tmp_path)
    yield str(tmp_path / "demo" / "orders")
    for name in TARGETS:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def comparable(text: str) -> str:
    return " ".join(CHANGING.sub("#", text).split())


def require_output(block: str, source: str) -> None:
    line, _, shown = block.partition("\n")
    words = shlex.split(line.replace(SOURCE, source))[2:]
    result = CliRunner().invoke(main, words, env={"COLUMNS": "110", "NO_COLOR": "1"})
    wanted = re.escape(comparable(shown)).replace(re.escape("..."), ".*?")
    got = comparable(result.output.replace(source, SOURCE))
    assert re.fullmatch(wanted, got), f"{line}\n{result.output}"


def test_the_page_shows_what_its_commands_print(
    spark: SparkSession, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "conversion.md"
    first, converted, again, verified, history, _follow, cleaning, refused = blocks(page, "console")
    for block in (first, converted):
        require_output(block, source)
    DeltaTable.for_path(spark, source).delete("id % 5 = 0")
    for block in (again, verified, history):
        require_output(block, source)
    refs = spark.sql(
        "SELECT r.name, r.type, s.operation, s.summary['delvec.source-operation'] of_delta"
        " FROM lake.db.history.refs r JOIN lake.db.history.snapshots s"
        " ON r.snapshot_id = s.snapshot_id ORDER BY r.name"
    )
    [shown] = [each for each in blocks(page, "text") if "of_delta" in each]
    refs.show(truncate=False)
    assert capsys.readouterr().out.strip() == shown.strip()

    DeltaTable.for_path(spark, source).delete("id % 11 = 0")
    convert(spark, source, "lake.db.history", history="per-version")
    _leave_orphan(IcebergTable.for_name(spark, "lake.db.history"))
    require_output(cleaning, source)
    spark.sql("ALTER TABLE lake.db.orders ADD COLUMN note STRING")
    spark.sql("DELETE FROM lake.db.orders WHERE id = 1")
    require_output(refused, source)


def _leave_orphan(table: IcebergTable) -> None:
    """Put a vector file that no snapshot refers to beside the others, six days old."""
    data = Path(table.location.removeprefix("file:")) / "data"
    name = "0000cecd-2fdf-4c71-8ace-f9ad2a842413-deletes.puffin"
    orphan = Path(shutil.copy(next(data.glob("*-deletes.puffin")), data / name))
    old = time.time() - 6 * 86_400
    os.utime(orphan, (old, old))
