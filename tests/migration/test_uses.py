"""What of delta-spark and deltalake sources use, and whether it runs."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from delvec.cli.exits import ExitCode
from delvec.compat import delta_spark, exceptions
from delvec.migration.python import python_uses
from delvec.migration.sql import script_uses
from delvec.peers import CALLS, DELTA_SPARK
from tests.cli.runner import run, run_json, separate
from tests.compat.snippets import SNIPPETS

OPEN = "from delta.tables import DeltaTable\nt = DeltaTable.forPath(s, p)\n"
RUST = "import deltalake as dl\nt = dl.DeltaTable(p)\n"
# A source, then its uses but for those of the lines that open a table: line, what, how it runs.
PYTHON: list[tuple[str, str]] = [
    ("from delta.tables import *\nDeltaTable.forPath(s, p)", "2 DeltaTable.forPath: import"),
    ("from delta import DeltaTable as D\nD.forName(s, n).toDF()", "2 DeltaTable.toDF: import"),
    ("import delta.tables as x\nx.DeltaTable.create(s)", "2 DeltaTable.create: import"),
    ("import delta\ndelta.tables.DeltaTable.create(s)", "2 DeltaTable.create: import"),
    ("from delta import tables\ntables.IdentityGenerator()", "2 IdentityGenerator: import"),
    ("from delta.exceptions import MetadataChangedException", "1 from delta.exc*: import"),
    ("from delta.exceptions import DeltaError", "1 from delta.exc*: rewrite"),
    ("import delta.connect", "1 import delta.connect: rewrite"),
    (f"{OPEN}t.alias('t').merge(d, c)\\\n  .whenMatchedDelete()", "4 *.whenMatchedDelete: import"),
    (f"{OPEN}t.optimize().where(c).executeCompaction()", "3 *.executeCompaction: import"),
    (f"{OPEN}t.clone(p)", "3 DeltaTable.clone(p): rewrite"),
    (f"{OPEN}t.clone(p, True)", "3 DeltaTable.clone: import"),
    (f"{OPEN}t.clone(p, isShallow=True, replace=True)", "3 DeltaTable.clone(*: rewrite"),
    (f"{OPEN}t.dropFeatureSupport('deletionVectors')", "3 *.dropFeatureSupport: import"),
    (f"{OPEN}t.dropFeatureSupport('v2Checkpoint')", "3 *.dropFeatureSupport(*: rewrite"),
    (f"{OPEN}DeltaTable.convertToDelta(s, 'db.t')", "3 *.convertToDelta(*: rewrite"),
    (f"{OPEN}DeltaTable.convertToDelta(s, f'parquet.`{{p}}`')", "3 *.convertToDelta: import"),
    ("def f(t: 'DeltaTable | None'):\n  t.toDF()", ""),
    (f"{OPEN}def f(t: 'DeltaTable | None'):\n  t.toDF()", "4 DeltaTable.toDF: import"),
    (f"{OPEN}def f(t):\n  t.toDF()", ""),
    (f"{OPEN}def f() -> DeltaTable: ...\nf().history()", "4 DeltaTable.history: import"),
    (
        f"{OPEN}class C:\n def a(self):\n  self.t = t\n def b(self):\n  self.t.detail()",
        "7 *: import",
    ),
    (f"{RUST}t.to_pyarrow_table()", "3 DeltaTable.to_pyarrow_table: rewrite"),
    (f"{RUST}t.optimize.compact()", "3 TableOptimizer.compact: rewrite"),
    (f"{RUST}t.alter.add_feature(f)", "3 TableAlterer.add_feature: rewrite"),
    (f"{RUST}t.table_uri", "3 DeltaTable.table_uri: rewrite"),
    (f"{RUST}t.merge(a, b).when_matched_delete()", "3 TableMerger.when_matched_delete: as is"),
    (f"{RUST}dl.write_deltalake(p, d)", "3 write_deltalake: rewrite"),
    ("from deltalake import *\nwrite_deltalake(p, d)", "2 write_deltalake: rewrite"),
    ("import mydelta\nmydelta.DeltaTable.forPath(s, p)", ""),
    ("from .delta import DeltaTable\nDeltaTable.forPath(s, p)", ""),
    ("s.read.format('delta').option('versionAsOf', 3).load(p)", "1 s.read*: door"),
    ("d.write.save(p, format='delta')", "1 d.write*: door"),
    ("d.writeTo('t').using('delta').create()", "1 d.writeTo*: door"),
    ("d.write.format('parquet').save(p)", ""),
    ("d.write.format('delta').option('dataChange', False).save(p)", "1 option(*: rewrite"),
    ("d.writeStream.format('delta').outputMode('update').start(p)", "1 outputMode(*: rewrite"),
    (
        "s.conf.set('spark.sql.extensions', 'io.delta.sql.DeltaSparkSessionExtension')",
        "1 *: rewrite",
    ),
    ("b.config(x, 'org.apache.spark.sql.delta.catalog.DeltaCatalog')", "1 *: rewrite"),
    ("{'spark.jars.packages': f'io.delta:delta-spark_2.13:{v}'}", "1 *: rewrite"),
    ("x = 'spark.databricks.delta.properties.defaults.appendOnly'", "1 *: rewrite"),
    ("'''io.delta:delta-spark_2.13:4.0.0 in a docstring'''", ""),
    ("s._jvm.io.delta.tables.DeltaTable.forPath(j, p)", "1 s._jvm*: rewrite"),
    ("s.sql(f'DELETE FROM {t} WHERE id = {n}')", "1 DELETE FROM … WHERE id = …: door"),
    ("q = 'OPTIMIZE t'\ns.sql(q)", "2 OPTIMIZE t: door"),
    ("s.sql('VACUUM {} RETAIN {} HOURS'.format(t, n))", "1 VACUUM … RETAIN … HOURS: door"),
    ("s.sql('RESTORE %s TO VERSION ' % t + 'AS OF 3')", "1 RESTORE … TO VERSION AS OF 3: door"),
    ("s.sql(sqlQuery='SELECT 1')", "1 SELECT 1: as is"),
    ("s.sql(query)", ""),
    ("import duckdb\nduckdb.sql('DELETE FROM t')", ""),
    ("print 'Python 2'", "1 the file: rewrite"),
]
SQL = [
    ("SELECT * FROM t", "as is"),
    ("INSERT INTO t VALUES (1)", "as is"),
    ("CREATE TABLE t (id INT) USING parquet", "as is"),
    ("DESCRIBE TABLE t", "as is"),
    ("SELECT * FROM delta.`/lake/t`", "door"),
    ("SELECT * FROM t TIMESTAMP AS OF '2026-01-01'", "door"),
    ("SELECT * FROM table_changes('t', 1)", "door"),
    ("UPDATE t SET a = 1", "door"),
    ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE", "door"),
    ("CREATE TABLE t (id INT) USING DELTA CLUSTER BY (id)", "door"),
    ("ALTER TABLE t CLUSTER BY (id)", "door"),
    ("ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "door"),
    ("OPTIMIZE t WHERE day > '2026-01-01' ZORDER BY (a, b)", "door"),
    ("REORG TABLE t APPLY (PURGE)", "door"),
    ("ALTER TABLE t ADD CONSTRAINT c CHECK (id > 0)", "door"),
    ("ALTER TABLE t DROP FEATURE deletionVectors", "door"),
    ("CREATE TABLE a SHALLOW CLONE b", "door"),
    ("CONVERT TO DELTA parquet.`/lake/p` NO STATISTICS", "door"),
    ("ALTER TABLE t DROP FEATURE v2Checkpoint", "rewrite"),
    ("CREATE TABLE a DEEP CLONE b", "rewrite"),
    ("CREATE OR REPLACE TABLE a CLONE b", "rewrite"),
    ("CONVERT TO DELTA db.t", "rewrite"),
    ("REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))", "rewrite"),
    ("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.universalFormat.x' = 'iceberg')", "rewrite"),
    ("CREATE TABLE t (id INT) USING delta TBLPROPERTIES ('delta.apendOnly' = 'true')", "rewrite"),
    ("VACUUM t USING INVENTORY (SELECT 1)", "rewrite"),
    ("ANALYZE TABLE t COMPUTE STATISTICS", "rewrite"),
    ("FSCK REPAIR TABLE t", "rewrite"),
    ("COPY INTO t FROM '/files' FILEFORMAT = PARQUET", "rewrite"),
]  # fmt: skip


def told(text: str) -> list[str]:
    return [f"{each.line} {each.what}: {each.verdict}" for each in python_uses("f", text)]


@pytest.mark.parametrize(("text", "expected"), PYTHON)
def test_names_of_python_are_followed(text: str, expected: str) -> None:
    opened = max(len(told(each)) for each in ("", OPEN, RUST) if text.startswith(each))
    found = told(text)
    if not expected:
        assert found[opened:] == []
        return
    assert any(fnmatchcase(each, expected) for each in found), found


@pytest.mark.parametrize(("statement", "verdict"), SQL)
def test_statements_are_judged_by_their_words(statement: str, verdict: str) -> None:
    [found] = script_uses("f", f"-- a comment; with a semicolon\n\n{statement};")
    assert (found.line, found.verdict) == (3, verdict)
    assert bool(found.write) == (verdict == "rewrite")


@pytest.mark.parametrize("name", [name for name in SNIPPETS if "deltalake" not in name])
def test_nothing_is_to_be_rewritten_of_what_runs_as_it_is_typed(name: str) -> None:
    """The snippets of `tests/compat/test_snippets.py` do run."""
    opened = "from delta.tables import *\ndeltaTable = DeltaTable.forPath(spark, p)\n"
    uses = list(python_uses("f", opened + SNIPPETS[name][0]))
    assert [each for each in uses[2:] if each.verdict == "rewrite"] == []
    assert [each for each in uses[2:] if each.verdict in ("door", "import")]


def test_the_classes_and_methods_that_only_change_their_import_are_there() -> None:
    for owner, methods in DELTA_SPARK.items():
        kind = getattr(delta_spark, owner) if owner else delta_spark
        kind = delta_spark._Builder if owner == "DeltaTableBuilder" else kind
        for method in methods:
            assert hasattr(kind, method), method
    assert set(DELTA_SPARK) | set(DELTA_SPARK[""]) - {""} >= set(delta_spark.__all__)
    assert "MetadataChangedException" in exceptions.__all__
    assert all(call.delvec for calls in CALLS.values() for call in calls)


def test_folders_are_searched_and_the_exit_code_says_whether_something_is_to_be_rewritten(
    tmp_path: Path,
) -> None:
    (tmp_path / "sub" / "__pycache__").mkdir(parents=True)
    (tmp_path / "sub" / "a.sql").write_text("OPTIMIZE t;\nVACUUM t")
    (tmp_path / "sub" / "__pycache__" / "b.sql").write_text("FSCK REPAIR TABLE t")
    (tmp_path / "c.txt").write_text("FSCK REPAIR TABLE t")
    found = run_json("migrate", tmp_path)
    counts = {"as is": 0, "door": 2, "import": 0, "rewrite": 0}
    assert (found["files"], found["counts"]) == (1, counts)
    assert found["uses"][1]["line"] == 2
    (tmp_path / "d.py").write_text("import deltalake")
    done = run("migrate", tmp_path, "--json", code=ExitCode.TO_REWRITE, runner=separate())
    assert json.loads(done.stdout)["counts"]["rewrite"] == 1
    assert "no file or folder" in run("migrate", tmp_path / "e", code=ExitCode.NOT_FOUND).output
    assert "neither Python nor SQL" in run("migrate", tmp_path / "c.txt", code=2).output
    for text, kind in (("OPTIMIZE t", "door"), ("import delta", "import")):
        piped = run("migrate", "-", "--json", code=0, runner=separate(), input=text)
        assert [each["verdict"] for each in json.loads(piped.stdout)["uses"]] == [kind]
    (tmp_path / "f.py").write_text("import pandas")
    assert run("migrate", tmp_path / "f.py", code=0).output == ""
