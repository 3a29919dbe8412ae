"""Tables on narrow terminals: figures stay whole, names are shortened, columns are omitted."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rich.console import Console

from delvec.cli.commands import convert, describe, files, history, inspect, refs, vacuum
from delvec.cli.output import Output
from delvec.cli.terminal import Column, fitted
from delvec.delta.check.report import CheckReport
from delvec.report.findings import Finding

NAME = "part-00000-fae5310a-a37d-4e51-827b-c3d5516560ca-c000.snappy.parquet"
FILE, VECTOR = f"day=2026-01-31/{NAME}", "ab^-aqEH.-t@S}K{vb[*k^@1"
LONG: dict[str, Any] = {
    "bytes": 123_456_789,
    "cardinality": 1_234_567_890,
    "deleted_rows": 1_234_567,
    "max": 12_345_678_901,
    "min": 0,
    "offset": 123_456,
    "version": 123_456,
    "error": None,
    **dict.fromkeys(("row_count", "rows"), 12_345_678),
    **dict.fromkeys(("file", "name"), FILE),
    **dict.fromkeys(("new_vector", "old_vector"), VECTOR),
    "path": NAME,
    "of": f"s3://lake/orders/{NAME}",
    "snapshot": "1234567890123456789",
    "action": "vector-replace",
    "content": "equality-delete-vector",
    "staging": "yes",
    "engine": "Apache-Spark/4.1.4 Delta-Lake/4.4.0",
    "kind": "deletion vector file",
    "key": "delta.deletedFileRetentionDuration",
    "value": "interval 60 days",
    "modified": "2026-01-31 10:00",
    "when": "2026-01-31 10:00:00",
    "size": "123.4 MiB",
    "operation": "CREATE OR REPLACE TABLE AS SELECT",
    "reason": "no snapshot refers to it",
    "parameters": "where (amount > 100 AND day < '2026-01-31'), mode=Overwrite",
    "partition": "day=2026-01-31 country=Deutschland",
    "share": "████▊     60.0 %",
    "type": "deletion-vector-v1",
    "vector": "absolute 40.5 KiB",
    "vectors": "12,345 added, 4 removed",
}
WHOLE = ("deleted_rows", "size", "when", "version", "cardinality", "max", "row_count", "bytes")
TABLES = {
    "clean-target": vacuum._TARGET_COLUMNS,
    "convert": convert._COLUMNS,
    "files": files._COLUMNS,
    "history": history._COLUMNS,
    "inspect": inspect._COLUMNS,
    "iceberg-files": files._ICEBERG_COLUMNS,
    "refs": refs._COLUMNS,
    "properties": describe._COLUMNS,
    "vacuum": vacuum._COLUMNS,
}


def drawn(draw: Callable[[Output], object], width: int) -> str:
    """What an output draws on a terminal of so many columns."""
    output, text = Output(), io.StringIO()
    output._console = Console(file=text, width=width, highlight=False, emoji=False)
    draw(output)
    return text.getvalue()


def printed(columns: Sequence[Column], rows: list[dict[str, Any]], width: int) -> str:
    return drawn(lambda output: output.table(columns, rows), width)


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_any_command_fits_and_keeps_its_figures(name: str, width: int) -> None:
    columns = list(TABLES[name])
    row = {column.key: LONG[column.key] for column in columns}
    text = printed(columns, [row, row], width)
    assert max(map(len, text.splitlines())) <= width, text
    for column in columns:
        omitted = f"{column.title}" in text.partition("No room for:")[2]
        if column.key in WHOLE and not omitted:
            value = row[column.key]
            shown = f"{value:,}" if isinstance(value, int) else str(value)
            assert shown in text, text


def test_columns_are_omitted_in_their_order_and_named() -> None:
    omitted = {"a": 0, "b": 2, "c": 1}
    columns = [Column(n, n, is_unbroken=True, omitted=at) for n, at in omitted.items()]
    rows = [{"a": "x" * 10, "b": "y" * 10, "c": "z" * 10}]
    found = [fitted(columns, rows, width) for width in (38, 37, 25, 24, 12, 11)]
    shown = [None if each is None else "".join(column.key for column in each) for each in found]
    assert shown == ["abc", "ac", "ac", "a", "a", None]
    text = " ".join(printed(columns, rows, 37).split())
    assert "No room for: b. Widen the terminal, or add --json." in text


def test_rows_become_blocks_where_no_table_fits() -> None:
    columns = [Column("a", "first", is_unbroken=True), Column("b", "second")]
    rows: list[dict[str, Any]] = [{"a": "x" * 18, "b": 5}, {"a": "y", "b": None}]
    assert [line.rstrip() for line in printed(columns, rows, 26).splitlines()] == [
        "first   xxxxxxxxxxxxxxxxxx",
        "second  5",
        "",
        "first   y",
    ]


def test_names_are_shortened_in_the_middle_only_as_far_as_needed() -> None:
    columns = [Column("path", "file", name_width=40), Column("size", "size", is_unbroken=True)]
    rows = [{"path": NAME, "size": "1.0 MiB"}]
    for width, length in ((200, 40), (60, 40), (45, 33), (30, 18)):
        text = printed(columns, rows, width)
        [name] = [word for word in text.split() if "…" in word]
        assert len(name) == length
        assert name.startswith("part-000")
        assert name.endswith("y.parquet")
    assert NAME in printed(columns, rows, 20_000)


def test_names_of_files_stay_different_when_they_are_shortened() -> None:
    columns = [Column("path", "file", name_width=40)]
    ends = "-c000.snappy.parquet"
    names = [f"part-00000-{i}ae5310a-a37d-4e51-827b-c3d5516560ca{ends}" for i in range(3)]
    names += [f"part-0000{i}-fae5310a-a37d-4e51-827b-c3d5516560ca{ends}" for i in range(3)]
    for width in (20, 30, 60):
        text = printed(columns, [{"path": name} for name in names], width)
        shown = [word for word in text.split() if "…" in word]
        assert len(set(shown)) == len(names), text
        assert max(map(len, text.splitlines())) <= width


def test_lines_of_reports_hang_below_their_text() -> None:
    finding = Finding("warning", "x", "", "much is wrong with it, and more is not known", "purge")
    report = CheckReport("/lake/orders", 3, data_files=4, vectors=5, infos=1, findings=(finding,))
    text = drawn(lambda output: output.draw(report), 44)
    assert [line.rstrip() for line in text.splitlines()] == [
        "CHECK of /lake/orders, version 3: nothing is",
        "    wrong",
        "  looked at  4 data files, 5 deletion",
        "             vectors",
        "  warning: much is wrong with it, and more",
        "      is not known",
        "    Hint: purge",
    ]


def test_a_sentence_is_not_folded_inside_of_a_figure() -> None:
    text = drawn(lambda output: output.note("4 files, 9 deleted 9.5 % ", ("of 1.5 MiB", "dim")), 20)
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines == ["4 files, 9 deleted", "9.5 % of 1.5 MiB"]
    assert "\ue000" not in text


def test_snapshots_without_a_time_that_python_has_are_shown() -> None:
    row: dict[str, Any] = {"snapshot_id": 7, "timestamp": None, "refs": [], "summary": None}
    document = history._iceberg_document(row)
    assert "timestamp" not in document
    assert history._iceberg_row(document)["when"] == "unknown"
