"""Wrong arguments: an InvalidArgumentError that names the call that was meant."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, functions

import delvec
from delvec import DeltaTable
from delvec.delta.table.writes import MergeBuilder
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from tests.delta.builder import TableBuilder
from tests.delta.log_files import newest_version
from tests.repository import ROOT

ROWS = pa.table({"id": [1], "v": [2]})
# Calls that need a session, by what the error says, and what its hint says.
CALLS: dict[str, tuple[Callable[[DeltaTable, DataFrame], object], str, str]] = {
    "delete of True": (
        lambda t, _: t.delete(True),  # type: ignore[arg-type]
        r"SQL or a Spark Column, not True",
        r"call delete\(\) without a condition",
    ),
    "delete by tuples": (
        lambda t, _: t.delete([("id", "<", 10), ("v", "=", "x")]),  # type: ignore[arg-type]
        r"not \[\('id', '<', 10\)",
        r"call delete\(\"id < 10 AND v = 'x'\"\)",
    ),
    "delete by rows": (
        lambda t, df: t.delete(df),  # type: ignore[arg-type]
        r"not a DataFrame of pyspark",
        r"call delete\(keys=df, on=\[\"id\"\]\)",
    ),
    "a condition under two names": (
        lambda t, _: t.delete(condition="id < 10", predicate="id < 20"),  # type: ignore[call-arg]
        r"delete\(\) got 'where' twice, as 'predicate' too",
        r"call delete\(where=",
    ),
    "a misspelt keyword": (
        lambda t, _: t.delete(wher="id < 10"),  # type: ignore[call-arg]
        r"delete\(\) has no keyword 'wher', only where, keys, on, rewrite_ratio, dry_run",
        r"call delete\(where=",
    ),
    "keys and a condition": (
        lambda t, _: t.delete("id < 10", keys=[1], on="id"),
        "a condition or keys, not both",
        "delete by keys first",
    ),
    "no keys": (
        lambda t, _: t.delete(keys=None, on="id"),
        "needs keys, not None; nothing was deleted",
        r"delete\(keys=\[1, 2\]",
    ),
    "neither keys nor their columns": (
        lambda t, _: t.delete(keys=None, on=None),
        "needs keys, not None; nothing was deleted",
        r"delete\(keys=\[1, 2\]",
    ),
    "keys of no column": (
        lambda t, _: t.delete(keys=[1]),
        "needs the columns of the keys, not on=None",
        r"on=\"id\"",
    ),
    "keys of a misspelt column": (
        lambda t, _: t.delete(keys=[1], on="idd"),
        "there is no column 'idd', only id, v",
        "did you mean id",
    ),
    "keys that lack a column": (
        lambda t, df: t.delete(keys=df, on=["id", "v"]),
        "the keys have no column v",
        "their columns are id",
    ),
    "a table instead of its rows": (
        lambda t, _: t.append(t),
        "takes rows, not a DeltaTable",
        r"append\(table.to_df\(\)\)",
    ),
    "a column of pandas": (
        lambda t, _: t.append(ROWS.to_pandas()["id"]),
        "pandas or polars DataFrame, or Arrow, not a Series of pandas",
        "createDataFrame",
    ),
    "a ratio without its name": (
        lambda t, _: t.delete("id < 1", 0.5),  # type: ignore[call-arg]
        r"delete\(\) takes only where without a name, got 2",
        r"^name the others: keys=\.\.\., on=\.\.\., rewrite_ratio=\.\.\., dry_run=",
    ),
    "overwrite without rows": (
        lambda t, _: t.overwrite(where="id = 1"),  # type: ignore[call-arg]
        "missing a required argument: 'df'",
        r"^call overwrite\(df, where=\.\.\.\)$",
    ),
    "overwrite where True": (
        lambda t, df: t.overwrite(df, True),  # type: ignore[arg-type]
        "not True",
        r"call overwrite\(df\) without",
    ),
    "clause by tuples": (
        lambda t, df: t.merge(df, "t.id = s.id").when_matched_update(
            {"v": "1"},
            [("id", "<", 3)],  # type: ignore[arg-type]
        ),
        "SQL or a Spark Column",
        r"call when_matched_update\(set, condition='id < 3'\)",
    ),
    "merge on None": (
        lambda t, df: t.merge(df, None),  # type: ignore[arg-type]
        "needs a condition, not None",
        r"call merge\(source, on=\"t.id = s.id\"\)",
    ),
    "update to an object": (
        lambda t, _: t.update({"v": object()}),
        r"new value of v in update\(\) .* not an object",
        "",
    ),
    "update to rows": (lambda t, df: t.update({"v": df}), "not a DataFrame", r"merge\(df"),
    "columns by number": (
        lambda t, _: t.to_df(columns=[1]),  # type: ignore[list-item]
        r"columns of to_df\(\) is a list of strings, not \[1\]",
        "",
    ),
    "update of nothing": (lambda t, _: t.update({}), "at least one column", ""),
    "update of a number": (
        lambda t, _: t.update({1: "1"}),  # type: ignore[dict-item]
        "mapping from columns",
        r"call update\(",
    ),
    "append of a list": (lambda t, _: t.append([(1, 2)]), r"not \[\(1, 2\)\]", "createDataFrame"),
    "append of a stream": (
        lambda t, df: t.append(df.sparkSession.readStream.format("rate").load()),
        "this DataFrame is a stream",
        "foreachBatch",
    ),
    "version of a transaction": (
        lambda t, df: t.append(df, txn_app_id="a", txn_version="x"),  # type: ignore[arg-type]
        r"txn_version of append\(\) is a whole number, not 'x'",
        "",
    ),
    "id of an application": (
        lambda t, df: t.append(df, txn_app_id=7, txn_version=7),  # type: ignore[arg-type]
        "txn_app_id .* is a string, not 7",
        "",
    ),
    "dry run": (
        lambda t, _: t.delete(dry_run="no"),  # type: ignore[arg-type]
        "dry_run .* is True or False",
        "",
    ),
    "ratio": (
        lambda t, _: t.delete(rewrite_ratio="half"),  # type: ignore[arg-type]
        "rewrite_ratio .* is a number, not 'half'",
        "",
    ),
    "properties as a string": (
        lambda t, _: t.set_properties("a=b"),  # type: ignore[arg-type]
        "properties .* is a mapping",
        "",
    ),
    "columns as a string": (
        lambda t, _: t.to_df(columns="id"),
        "columns .* is a list of strings, not 'id'",
        r"call to_df\(columns=\['id'\]\)",
    ),
    "a condition of to_arrow": (
        lambda t, _: t.to_arrow({"id": 3}),  # type: ignore[arg-type]
        "is tuples, SQL or a Spark Column",
        r"call to_arrow\(\"id < 10\"\)",
    ),
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    path = tmp_path_factory.mktemp("arguments") / "t"
    builder = TableBuilder(path, fields={"id": "long", "v": "long"})
    builder.create()
    builder.commit({"add": builder.write_file("part", {"id": [1], "v": [1]})})
    return DeltaTable.for_path(spark, path)


@pytest.mark.spark
@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments(spark: SparkSession, table: DeltaTable, name: str) -> None:
    call, message, hint = CALLS[name]
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        call(table, spark.range(1))
    assert (caught.value.hint is None) == (not hint)
    assert re.search(hint, caught.value.hint or "")
    assert table.version == 1


OPENED: dict[str, tuple[Callable[[Any], object], str]] = {
    "a session that is none": (lambda spark: DeltaTable(spark, "/lake/t"), r"delvec.session\(\)"),
    "a path and a session": (
        lambda spark: DeltaTable("/lake/t", spark),
        r"call DeltaTable\(spark, path\)",
    ),
    "a version": (lambda _: DeltaTable("/lake/t", version=3), r"to_arrow\(version=3\)"),
    "for_path of a path": (lambda _: DeltaTable.for_path("/lake/t"), r"for_path\(spark, path\)"),  # type: ignore[call-arg, arg-type]
    "for_path the other way round": (
        lambda spark: DeltaTable.for_path("/lake/t", spark),  # type: ignore[arg-type]
        r"call for_path\(spark, '/lake/t'\)",
    ),
    "for_path with wrong options": (
        lambda _: DeltaTable.for_path(None, "t", "key=value"),  # type: ignore[arg-type]
        "",
    ),
    "for_name without a session": (
        lambda _: DeltaTable.for_name(None, "db.t"),  # type: ignore[arg-type]
        r"for_path\(None, path\)",
    ),
    "convert with a misspelt keyword": (
        lambda spark: delvec.convert(spark, "t", "lake.db.t", verfy="rows"),  # type: ignore[call-arg]
        r"call convert\(verify=",
    ),
    "explain of a number": (lambda _: delvec.explain(3), r"call explain\("),  # type: ignore[arg-type]
    "partitions as a string": (
        lambda _: DeltaTable.create(None, "t", "id long", partition_by="id"),
        r"call create\(partition_by=\['id'\]\)",
    ),
    "properties as a list": (
        lambda _: DeltaTable.create(None, "t", "id long", properties=["a"]),  # type: ignore[arg-type]
        "",
    ),
}


@pytest.mark.parametrize("name", OPENED)
def test_wrong_ways_to_open_a_table(name: str) -> None:
    call, hint = OPENED[name]
    with pytest.raises(InvalidArgumentError) as caught:
        call(object())
    assert re.search(hint, caught.value.hint or "")


def test_all_public_methods_refuse_keywords_that_they_do_not_have() -> None:
    """The session is never asked."""
    for kind in (DeltaTable, MergeBuilder):
        for name, member in inspect.getmembers(kind, callable):
            if not name.startswith("_"):
                with pytest.raises(InvalidArgumentError, match=rf"{name}\(\) has no keyword 'nil'"):
                    member(nil=1)


UNREADABLE: dict[str, Callable[[DeltaTable, DataFrame, Column], object]] = {
    "delete": lambda t, _, sql: t.delete(sql),
    "update": lambda t, _, sql: t.update({"v": sql}),
    "merge": lambda t, df, sql: t.merge(df, sql),
    "to_df": lambda t, _, sql: t.to_df(where=sql),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", UNREADABLE)
def test_wrong_sql_in_a_column_is_one_error(
    spark: SparkSession, table: DeltaTable, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="PARSE_SYNTAX_ERROR"):
        UNREADABLE[name](table, spark.range(1), functions.expr("id <"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.spark
def test_a_name_that_the_catalog_does_not_have_is_one_error(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TableNotFoundError):
        DeltaTable.for_name(spark, "nope.x")
    assert capfd.readouterr() == ("", "")


MISSPELT: dict[str, Callable[[DeltaTable, DataFrame], object]] = {
    "delete": lambda t, _: t.delete("idd < 3"),
    "update": lambda t, _: t.update({"v": "vv + 1"}),
    "merge": lambda t, df: t.merge(df, "t.idd = s.id").when_matched_delete().execute(),
    "clause": lambda t, df: (
        t.merge(df, "t.id = s.id").when_matched_update({"v": "s.idd"}).execute()
    ),
    "insert": lambda t, df: (
        t.merge(df, "t.id = s.id").when_not_matched_insert({"id": "s.idd"}).execute()
    ),
    "to_df": lambda t, _: t.to_df(where="idd < 3"),
    "constraint": lambda t, _: t.add_constraint("positive", "idd > 0"),
    "purge": lambda t, _: t.purge("t.idd < 3"),
    "count": lambda t, _: t.count("idd < 3"),
    "columns": lambda t, _: t.to_df(columns=["idd"]),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_column_is_one_error_that_names_columns_of_the_table(
    spark: SparkSession, table: DeltaTable, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"there is no column .*(idd|vv)") as caught:
        MISSPELT[name](table, spark.range(1))
    assert re.search(r"^did you mean (t\.|s\.)?(id|v)( or .*)?\?$", caught.value.hint or "")
    assert "delvec_" not in str(caught.value)
    assert "_tmp_metadata" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert capfd.readouterr() == ("", "")


@pytest.mark.spark
def test_errors_of_the_user_are_logged_by_pyspark_as_ever(
    spark: SparkSession, table: DeltaTable, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(InvalidArgumentError):
            table.delete("idd < 3")
        assert not caplog.records
        with pytest.raises(Exception, match="idd"):
            spark.sql("SELECT idd FROM range(3)")
        assert len(caplog.records) == 1
    finally:
        logger.removeHandler(caplog.handler)


class RemoteSession:
    """What delvec sees of a Spark Connect session: it makes DataFrames, and has no JVM."""

    createDataFrame = None  # noqa: N815
    conf: ClassVar = {"spark.sql.session.timeZone": "UTC"}


@pytest.mark.parametrize("mode", ["error", "ignore", "replace"])
def test_a_table_is_not_created_for_a_session_that_could_not_write_to_it(
    tmp_path: Path,
    mode: Any,  # noqa: ANN401
) -> None:
    remote: Any = RemoteSession()
    with pytest.raises(UnsupportedFeatureError, match=r"classic .* Spark Connect") as caught:
        DeltaTable.create(remote, tmp_path / "t", DeltaTable, mode=mode)
    assert "for_path(None, path)" in str(caught.value.hint)
    assert not (tmp_path / "t").exists()
    builder = TableBuilder(tmp_path / "t", fields={"id": "long"})
    builder.create()
    table = DeltaTable.for_path(remote, tmp_path / "t")
    assert table.to_arrow().num_rows == 0, "reading needs no JVM"
    for write in (
        table.delete,
        table.enable_deletion_vectors,
        table.optimize,
        table.purge,
        lambda: table.merge(ROWS, "true"),
        lambda: table.append(ROWS),
        lambda: table.overwrite(ROWS),
        lambda: table.update({"id": "1"}),
        lambda: table.delete(keys=[1], on="id"),
        table.to_df,
    ):
        with pytest.raises(UnsupportedFeatureError, match="Spark Connect") as caught:
            write()
        assert caught.value.hint
    assert newest_version(tmp_path / "t") == 0


STOPPED = """
from delvec import DeltaTable
from tests.spark.delta.write.crash_child import session
import sys
spark = session()
table = DeltaTable.create(spark, sys.argv[1], "id long")
df = spark.range(3)
spark.stop()
for act in (
    lambda: table.append(df),
    lambda: table.delete(),
    lambda: DeltaTable.for_path(session(), sys.argv[1]).append(df),
):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_stopped_session_is_named_as_the_cause(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", STOPPED, str(tmp_path / "t")]
    told = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.count("InvalidArgumentError") == 3
    assert told.count("this one was stopped") == 3
