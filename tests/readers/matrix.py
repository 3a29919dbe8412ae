"""Which reader gives the rows of which converted table, and the table of it in the docs."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import feather
from pyspark.sql import SparkSession

from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from tests.delta.rows import rows_of
from tests.readers.readers import READERS, title
from tests.readers.tables import FORMS, SOURCES, Converted, convert_tables
from tests.repository import ROOT

PAGE: Final = ROOT / "docs" / "conversion.md"
_PLACE: Final = re.compile(r"(<!-- readers: begin[^\n]*-->\n).*(<!-- readers: end -->)", re.DOTALL)
_SPARK: Final = "Spark"
_SECONDS: Final = 300


@dataclass(frozen=True)
class Seen:
    """What a reader gave: the right rows, others, or an error."""

    table: Converted
    reader: str
    error: str = ""
    wrong: str = ""

    @property
    def cell(self) -> str:
        return "fails" if self.error else "**WRONG ROWS**" if self.wrong else "reads"


def see(spark: SparkSession, folder: Path) -> list[Seen]:
    """Convert all tables and read each with each reader, in a process of its own."""
    tables = convert_tables(spark, folder)
    by_spark = [_compared(table, _SPARK, table.by_spark) for table in tables]
    pairs = [(table, reader) for table in tables for reader in READERS]
    with ThreadPoolExecutor(2) as pool:
        return [*by_spark, *pool.map(lambda pair: _read(pair[0], pair[1], folder), pairs)]


def _read(table: Converted, reader: str, folder: Path) -> Seen:
    rows = folder / f"{table.source}-{table.form}-{reader}.arrow"
    command = [
        sys.executable,
        "-m",
        "tests.readers.readers",
        reader,
        str(table.metadata),
        str(rows),
    ]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Seen(table, reader, error=f"no result within {_SECONDS} s")
    if done.returncode:
        return Seen(table, reader, error=_message(done.stderr, done.returncode))
    return _compared(table, reader, rows)


def _message(output: str, code: int) -> str:
    """Take the last exception of a traceback, or the first cause of Java's, without file names."""
    lines = output.splitlines()
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    last = (causes or errors or [f"exit code {code}"])[-1]
    return re.sub(r"(file:)?/[^\s'\",:;]+", "…", last)[:140].strip()


def _compared(table: Converted, reader: str, found: Path) -> Seen:
    left, right = (_plain(feather.read_table(path)) for path in (found, table.expected))
    if left.column_names != right.column_names:
        return Seen(table, reader, wrong=f"other columns: {', '.join(left.column_names)}")
    rows, expected = rows_of(left), rows_of(right)
    more, less = (rows - expected).total(), (expected - rows).total()
    if not more and not less:
        return Seen(table, reader)
    wrong = f"{more:,} rows that are not in the source, {less:,} of its rows missing"
    if left.num_rows == right.num_rows:
        left, right = left.sort_by("id"), right.sort_by("id")
        other = [
            name for name in right.column_names if left[name].to_pylist() != right[name].to_pylist()
        ]
        wrong += f"; other values of {', '.join(other)}"
    return Seen(table, reader, wrong=wrong)


def _plain(table: pa.Table) -> pa.Table:
    """Give instants as microseconds: a time zone is how a reader shows them."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            instants = table[number].cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            table = table.set_column(number, field.name, instants)
    return table


def shown_table(seen: list[Seen]) -> str:
    """Give the table in Markdown, with the errors below it."""
    readers = list(dict.fromkeys(each.reader for each in seen))
    cells = {(each.table.source, each.table.form, each.reader): each for each in seen}
    lines = [
        "| source | target | " + " | ".join(readers) + " |",
        "|---|---|" + "---|" * len(readers),
    ]
    for source in SOURCES:
        for form in FORMS:
            row = [cells[source, form, reader].cell for reader in readers]
            lines.append(f"| {SOURCES[source].title} | {FORMS[form][0]} | {' | '.join(row)} |")
    versions = [_spark_title(), *(f"{each}: {title(each)}" for each in READERS)]
    lines += ["", "Versions: " + "; ".join(versions) + ".", ""]
    lines += [f"- {reader}: {said}" for reader in readers if (said := _said(seen, reader))]
    return "\n".join(lines) + "\n"


def _said(seen: list[Seen], reader: str) -> str:
    texts = dict.fromkeys(each.wrong or each.error for each in seen if each.reader == reader)
    return "; ".join(f"`{text}`" for text in texts if text)


def _spark_title() -> str:
    return f"{_SPARK}: {iceberg_coordinate().removeprefix('org.apache.iceberg:')}"


def with_table(page: str, seen: list[Seen]) -> str:
    """Give a page with another table between its marks."""
    assert _PLACE.search(page), "the page has no place for the table"
    return _PLACE.sub(lambda match: f"{match[1]}\n{shown_table(seen)}\n{match[2]}", page)
