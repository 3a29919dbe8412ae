"""Wrong arguments: an InvalidArgumentError that names the call that was meant."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import delvec
from delvec import DeltaTable
from delvec.delta.table.writes import MergeBuilder
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from tests.delta.builder import TableBuilder
from tests.delta.log_files import newest_version
from tests.repository import ROOT

ROWS = pa.table({"id": [1], "v": [2]})
NAMES = {"DeltaTable": DeltaTable, "delvec": delvec, "F": functions, "ROWS": ROWS}
SESSION = object()  # which is none
# Calls with a table `t` and rows `df`, what the error says, and what its hint says.
CALLS = [
    ("t.delete(True)", r"SQL or a Spark Column, not True", r"call delete\(\) without a condition"),
    (
        "t.delete([('id', '<', 10), ('v', '=', 'x')])",
        r"not \[\('id', '<', 10\)",
        r"call delete\(\"id < 10 AND v = 'x'\"\)",
    ),
    ("t.delete(df)", "not a DataFrame of pyspark", r"call delete\(keys=df, on=\[\"id\"\]\)"),
    (
        "t.delete(condition='id < 10', predicate='id < 20')",
        r"delete\(\) got 'where' twice, as 'predicate' too",
        r"call delete\(where=",
    ),
    (
        "t.delete(wher='id < 10')",
        r"delete\(\) has no keyword 'wher', only where, keys, on, rewrite_ratio, dry_run",
        r"call delete\(where=",
    ),
    (
        "t.delete('id < 10', keys=[1], on='id')",
        "a condition or keys, not both",
        "delete by keys first",
    ),
    (
        "t.delete(keys=None, on='id')",
        "needs keys, not None; nothing was deleted",
        r"delete\(keys=\[1, 2\]",
    ),
    (
        "t.delete(keys=None, on=None)",
        "needs keys, not None; nothing was deleted",
        r"delete\(keys=\[1, 2\]",
    ),
    ("t.delete(keys=[1])", "needs the columns of the keys, not on=None", r"on=\"id\""),
    ("t.delete(keys=[1], on='idd')", "there is no column 'idd', only id, v", "did you mean id"),
    ("t.delete(keys=df, on=['id', 'v'])", "the keys have no column v", "their columns are id"),
    ("t.append(t)", "takes rows, not a DeltaTable", r"append\(table.to_df\(\)\)"),
    (
        "t.append(ROWS.to_pandas()['id'])",
        "pandas or polars DataFrame, or Arrow, not a Series of pandas",
        "createDataFrame",
    ),
    (
        "t.delete('id < 1', 0.5)",
        r"delete\(\) takes only where without a name, got 2",
        r"^name the others: keys=\.\.\., on=\.\.\., rewrite_ratio=\.\.\., dry_run=",
    ),
    (
        "t.overwrite(where='id = 1')",
        "missing a required argument: 'df'",
        r"^call overwrite\(df, where=\.\.\.\)$",
    ),
    ("t.overwrite(df, True)", "not True", r"call overwrite\(df\) without"),
    (
        "t.merge(df, 't.id = s.id').when_matched_update({'v': '1'}, [('id', '<', 3)])",
        "SQL or a Spark Column",
        r"call when_matched_update\(set, condition='id < 3'\)",
    ),
    (
        "t.merge(df, None)",
        "needs a condition, not None",
        r"call merge\(source, on=\"t.id = s.id\"\)",
    ),
    ("t.update({'v': object()})", r"new value of v in update\(\) .* not an object", ""),
    ("t.update({'v': df})", "not a DataFrame", r"merge\(df"),
    ("t.update({})", "at least one column", ""),
    ("t.update({1: '1'})", "mapping from columns", r"call update\("),
    ("t.append([(1, 2)])", r"not \[\(1, 2\)\]", "createDataFrame"),
    (
        "t.append(df.sparkSession.readStream.format('rate').load())",
        "this DataFrame is a stream",
        "foreachBatch",
    ),
    (
        "t.append(df, txn_app_id='a', txn_version='x')",
        r"txn_version of append\(\) is a whole number, not 'x'",
        "",
    ),
    ("t.append(df, txn_app_id=7, txn_version=7)", "txn_app_id .* is a string, not 7", ""),
    ("t.delete(dry_run='no')", "dry_run .* is True or False", ""),
    ("t.delete(rewrite_ratio='half')", "rewrite_ratio .* is a number, not 'half'", ""),
    ("t.set_properties('a=b')", "properties .* is a mapping", ""),
    ("t.to_df(columns=[1])", r"columns of to_df\(\) is a list of strings, not \[1\]", ""),
    (
        "t.to_df(columns='id')",
        "columns .* is a list of strings, not 'id'",
        r"call to_df\(columns=\['id'\]\)",
    ),
    ("t.to_arrow({'id': 3})", "is tuples, SQL or a Spark Column", r"call to_arrow\(\"id < 10\"\)"),
]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    path = tmp_path_factory.mktemp("arguments") / "t"
    builder = TableBuilder(path, fields={"id": "long", "v": "long"})
    builder.create()
    builder.commit({"add": builder.write_file("part", {"id": [1], "v": [1]})})
    return DeltaTable.for_path(spark, path)


def run(call: str, table: DeltaTable | None = None, df: DataFrame | None = None) -> None:
    eval(call, NAMES | {"t": table, "df": df, "SESSION": SESSION})  # noqa: S307


@pytest.mark.spark
@pytest.mark.parametrize(("call", "message", "hint"), CALLS, ids=[call for call, *_ in CALLS])
def test_wrong_arguments(
    spark: SparkSession, table: DeltaTable, call: str, message: str, hint: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        run(call, table, spark.range(1))
    assert (caught.value.hint is None) == (not hint)
    assert re.search(hint, caught.value.hint or "")
    assert table.version == 1


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("DeltaTable(SESSION, '/lake/t')", r"delvec.session\(\)"),
        ("DeltaTable('/lake/t', SESSION)", r"call DeltaTable\(spark, path\)"),
        ("DeltaTable('/lake/t', version=3)", r"to_arrow\(version=3\)"),
        ("DeltaTable.for_path('/lake/t')", r"for_path\(spark, path\)"),
        ("DeltaTable.for_path('/lake/t', SESSION)", r"call for_path\(spark, '/lake/t'\)"),
        ("DeltaTable.for_path(None, 't', 'key=value')", ""),
        ("DeltaTable.for_name(None, 'db.t')", r"for_path\(None, path\)"),
        ("delvec.convert(SESSION, 't', 'lake.db.t', verfy='rows')", r"call convert\(verify="),
        ("delvec.explain(3)", r"call explain\("),
        (
            "DeltaTable.create(None, 't', 'id long', partition_by='id')",
            r"call create\(partition_by=\['id'\]\)",
        ),
        ("DeltaTable.create(None, 't', 'id long', properties=['a'])", ""),
    ],
)
def test_wrong_ways_to_open_a_table(call: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        run(call)
    assert re.search(hint, caught.value.hint or "")


def test_all_public_methods_refuse_keywords_that_they_do_not_have() -> None:
    """The session is never asked."""
    for kind in (DeltaTable, MergeBuilder):
        for name, member in inspect.getmembers(kind, callable):
            if not name.startswith("_"):
                with pytest.raises(InvalidArgumentError, match=rf"{name}\(\) has no keyword 'nil'"):
                    member(nil=1)


@pytest.mark.spark
@pytest.mark.parametrize(
    "call", ["t.delete(SQL)", "t.update({'v': SQL})", "t.merge(df, SQL)", "t.to_df(where=SQL)"]
)
def test_wrong_sql_in_a_column_is_one_error(
    spark: SparkSession, table: DeltaTable, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="PARSE_SYNTAX_ERROR"):
        run(call.replace("SQL", "F.expr('id <')"), table, spark.range(1))
    assert capfd.readouterr() == ("", "")


@pytest.mark.spark
def test_a_name_that_the_catalog_does_not_have_is_one_error(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TableNotFoundError):
        DeltaTable.for_name(spark, "nope.x")
    assert capfd.readouterr() == ("", "")


@pytest.mark.spark
@pytest.mark.parametrize(
    "call",
    [
        "t.delete('idd < 3')",
        "t.update({'v': 'vv + 1'})",
        "t.merge(df, 't.idd = s.id').when_matched_delete().execute()",
        "t.merge(df, 't.id = s.id').when_matched_update({'v': 's.idd'}).execute()",
        "t.merge(df, 't.id = s.id').when_not_matched_insert({'id': 's.idd'}).execute()",
        "t.to_df(where='idd < 3')",
        "t.to_df(columns=['idd'])",
        "t.add_constraint('positive', 'idd > 0')",
        "t.purge('t.idd < 3')",
        "t.count('idd < 3')",
    ],
)
def test_a_misspelt_column_is_one_error_that_names_columns_of_the_table(
    spark: SparkSession, table: DeltaTable, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"there is no column .*(idd|vv)") as caught:
        run(call, table, spark.range(1))
    assert re.search(r"^did you mean (t\.|s\.)?(id|v)( or .*)?\?$", caught.value.hint or "")
    assert not re.search("delvec_|_tmp_metadata", str(caught.value))
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
    calls = "delete(); enable_deletion_vectors(); optimize(); purge(); merge(ROWS, 'true'); to_df()"
    more = "append(ROWS); overwrite(ROWS); update({'id': '1'}); delete(keys=[1], on='id')"
    for call in f"{calls}; {more}".split("; "):
        with pytest.raises(UnsupportedFeatureError, match="Spark Connect") as caught:
            run(f"t.{call}", table)
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
