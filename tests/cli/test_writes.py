"""The commands that change tables, and the clauses that `delvec merge` takes."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.cli.exits import ExitCode
from delvec.cli.tables import read_source
from delvec.delta.table import DeltaTable
from delvec.errors import DelvecError, InvalidArgumentError
from delvec.spark.failures import translate_errors
from delvec.statements.clauses import ClauseText, Cursor, assignments, parse_clause
from tests.cli.runner import run

WORDS = "(s.then or s.case) and 'then' <> `then` and r'\\' = s.p"
SPOKEN = "s.a = 'it\\'s then' /* then ' */ and s.b"
VALUE = "if(s.b == 1, 'x,y', \"z\")"
CLAUSES = {
    "matched then delete": ("matched", "delete"),
    "WHEN MATCHED AND s.x > 1 THEN DELETE": ("matched", "delete", "s.x > 1"),
    "matched then update set *": ("matched", "update_all"),
    f"matched then update set a = s.a, t.`b,=c` = {VALUE}": (
        *("matched", "update", None),
        {"a": "s.a", "b,=c": VALUE},
    ),
    "not matched then insert *": ("not_matched", "insert_all"),
    "not matched by target then insert *": ("not_matched", "insert_all"),
    "not matched and s.a <=> ')' then insert (a, `b)`) values (s.a, f(1, [2, 3]))": (
        *("not_matched", "insert", "s.a <=> ')'"),
        {"a": "s.a", "b)": "f(1, [2, 3])"},
    ),
    "not matched by source then delete": ("not_matched_by_source", "delete"),
    "Not  Matched\nBy Source And t.day < '2026' Then Update Set gone = true": (
        *("not_matched_by_source", "update", "t.day < '2026'"),
        {"gone": "true"},
    ),
    **{
        f"matched and {condition} then delete": ("matched", "delete", condition)
        for condition in ("case when s.a then t.b else false end", WORDS, "s.a.end")
    },
    f"matched and {SPOKEN} -- then (\n then delete": ("matched", "delete", SPOKEN),
}


@pytest.mark.parametrize(("text", "clause"), CLAUSES.items())
def test_clauses_are_read_as_sql_reads_them(text: str, clause: tuple[Any, ...]) -> None:
    assert parse_clause(text) == ClauseText(*clause)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected NOT MATCHED, found the end"),
        ("matched", "expected THEN, found the end"),
        ("matched s.a then delete", "expected THEN, found 's'"),
        ("matched and then delete", "expected an expression, found 'then'"),
        ("matched then", "expected DELETE, UPDATE or INSERT, found the end"),
        ("matched then delete t", "expected nothing more, found 't'"),
        ("matched then insert *", r"MATCHED does not go with INSERT \*"),
        ("not matched then delete", "NOT MATCHED does not go with DELETE"),
        ("not matched by source then update set *", r"BY SOURCE does not go with UPDATE \*"),
        ("matched then update a = 1", "expected SET, found 'a'"),
        ("matched then update set a", "expected =, found the end"),
        ("matched then update set a + 1 = 2", r"'a \+ 1' is not a column"),
        ("matched then update set a = 1, a = 2", "a is set twice"),
        ("matched then update set a = 1,", "expected an expression, found the end"),
        ("not matched then insert (a, b) values (1)", "1 values for the columns a, b"),
        ("not matched then insert (a, a) values (1, 2)", "2 values for the columns a, a"),
        ("not matched then insert a values (1)", r"expected \(, found 'a'"),
        ("not matched then insert () values ()", "expected an expression, found the end"),
        ("matched and s.a = 'x then delete", "quote ' is not closed, at character 19"),
        ("matched and (s.a then delete", r"\) is missing at the end"),
        ("matched and s.a) then delete", r"\) closes nothing, at character 16"),
        ("matched and (s.a] then delete", r"\] closes nothing"),
    ],
)
def test_what_is_no_clause_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        parse_clause(text)
    assert "then insert *" in str(caught.value.hint)


def test_clauses_call_the_method_of_their_name() -> None:
    class Recorder:
        def __getattr__(self, name: str) -> object:
            return lambda *values, condition: (name, *values, condition)

    for text, called in {
        "matched and a then delete": ("when_matched_delete", "a"),
        "matched then update set x = 1": ("when_matched_update", {"x": "1"}, None),
        "not matched then insert *": ("when_not_matched_insert_all", None),
        "not matched by source then update set x = 1": (
            *("when_not_matched_by_source_update", {"x": "1"}, None),
        ),
    }.items():
        assert parse_clause(text).add_to(Recorder()) == called


def test_assignments_are_divided_by_their_own_commas_only() -> None:
    text = "a=b=c, s.x = struct(1, 2), `o``k` = 1, `s` . `.y` = 2, m = map['k,'], n = a <= b"
    found = {"a": "b=c", "s.x": "struct(1, 2)", "o`k": "1", "`s`.`.y`": "2", "n": "a <= b"}
    assert assignments(Cursor(text, hint="")) == {**found, "m": "map['k,']"}


@pytest.mark.spark
def test_a_transaction_is_written_once_and_keys_of_a_file_are_deleted(
    orders: DeltaTable, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(
        "id,day,note\n1,2026-01-31,a\n2,2026-01-31,b\n3,2026-01-31,c\n"
    )
    (tmp_path / "gone.csv").write_text("id\n2\n9\n")
    root = orders.storage.root
    txn = ("--txn-app-id", "job", "--txn-version", "1", "--json")
    for written in (3, 0):
        told = run("append", root, "--source", tmp_path / "new.csv", *txn, code=0)
        assert json.loads(told.output)["rows_inserted"] == written
    told = run("delete-keys", root, "--key", "id", "--source", tmp_path / "gone.csv", "--json")
    assert json.loads(told.output)["rows_deleted"] == 1
    told = run("delete-keys", root, "--key", "id", "--values", "3", "--dry-run")
    assert "1 row would be deleted" in told.output
    assert sorted(orders.to_arrow()["id"].to_pylist()) == [1, 3]
    wrong = run("delete-keys", root, "--key", "id", "--values", "x", code=ExitCode.USAGE)
    assert "not all values of id are long" in wrong.output


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    path = tmp_path / "orders"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, day DATE, note STRING) USING delta")
    return DeltaTable.for_path(spark, path)


def source_rows(
    table: DeltaTable, source: Path, kind: str | None = None
) -> tuple[dict[str, str], list[tuple[object, ...]]]:
    df = read_source(table, str(source), kind)
    return dict(df.dtypes), sorted(map(tuple, df.collect()), key=str)


@pytest.mark.more
@pytest.mark.spark
def test_sources_take_the_types_of_the_table_and_are_known_by_name_or_by_what_they_are(
    spark: SparkSession, orders: DeltaTable, tmp_path: Path
) -> None:
    file = tmp_path / "new.csv"
    file.write_text("note,ID,day,extra\n007,1,2026-01-31,5\n,2,,6\n")
    types, rows = source_rows(orders, file)
    assert types == {"note": "string", "ID": "bigint", "day": "date", "extra": "int"}
    assert rows == [("007", 1, date(2026, 1, 31), 5), (None, 2, None, 6)]
    file = tmp_path / "new.jsonl"
    file.write_text('{"id": 1, "day": "2026-01-31", "extra": [1]}\n')
    types, rows = source_rows(orders, file)
    assert types == {"day": "date", "extra": "array<bigint>", "id": "bigint"}
    assert rows == [(date(2026, 1, 31), [1], 1)]
    for name, form in (("a.parquet", "parquet"), ("folder", "parquet"), ("table", "delta")):
        spark.range(2).write.format(form).save(str(tmp_path / name))
        given = form if name == "folder" else None
        assert source_rows(orders, tmp_path / name, given)[1] == [(0,), (1,)]
    with pytest.raises(InvalidArgumentError, match="does not show its format"):
        source_rows(orders, tmp_path / "folder")


@pytest.mark.more
@pytest.mark.spark
def test_a_source_that_is_not_there_or_has_values_of_another_type_is_an_error(
    orders: DeltaTable, tmp_path: Path
) -> None:
    root = orders.storage.root
    for name, *more in (("a.parquet",), ("a.csv",), ("a.json",), ("b",), ("b", "--format", "csv")):
        source = ("--source", tmp_path / name)
        result = run("append", root, *source, *more, code=ExitCode.NOT_FOUND)
        assert f"{tmp_path}/{name} does not exist" in result.output
    keys = ("--key", "id", "--source", f"{tmp_path}/gone.csv")
    run("delete-keys", root, *keys, code=ExitCode.NOT_FOUND)
    for name, text in {"n.csv": "id,day\none,2026-01-31\n", "n.json": '{"id": "one"}\n'}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(DelvecError, match=name), translate_errors("orders"):
            source_rows(orders, tmp_path / name)
