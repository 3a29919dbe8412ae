"""A Hive metastore that delta-spark and delvec use in turn: each works on tables of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.statements.door.judge import open_child

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MADE = (
    "CREATE TABLE shop.{x}_plain (id BIGINT COMMENT 'k', v STRING) USING delta COMMENT 'c'",
    "CREATE TABLE shop.{x}_parts (id BIGINT NOT NULL, day DATE) USING delta PARTITIONED BY (day)",
    "CREATE TABLE shop.{x}_placed (id BIGINT) USING delta LOCATION '$W/{x}_placed'",
    "CREATE TABLE shop.{x}_rows USING delta PARTITIONED BY (p) AS SELECT id, 1 AS p FROM range(4)",
    "CREATE OR REPLACE TABLE shop.{x}_replaced USING delta TBLPROPERTIES ('a' = 'b') AS SELECT 1 x",
    "CREATE TABLE shop.{x}_like LIKE shop.{x}_parts",
    "CREATE TABLE shop.{x}_clone SHALLOW CLONE shop.{x}_rows",
    "spark.range(3).write.format('delta').saveAsTable('shop.{x}_saved')",
    "spark.range(3).write.format('delta').option('path', '$W/{x}_at').saveAsTable('shop.{x}_at')",
    "spark.range(3).writeTo('shop.{x}_v2').using('delta').tableProperty('k', 'v').create()",
)
NAMES = ("plain", "parts", "placed", "rows", "replaced", "like", "clone", "saved", "at", "v2")
CHANGED = (
    "INSERT INTO shop.{x}_plain VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO shop.{x}_parts VALUES (1, DATE '2026-01-01')",
    "INSERT INTO shop.{x}_placed VALUES (1), (2)",
    "DELETE FROM shop.{x}_rows WHERE id = 1",
    "UPDATE shop.{x}_saved SET id = id + 10 WHERE id > 0",
    "MERGE INTO shop.{x}_v2 t USING shop.{x}_at s ON t.id = s.id + 1 WHEN MATCHED THEN DELETE",
    "ALTER TABLE shop.{x}_plain ADD COLUMNS (more INT)",
    "ALTER TABLE shop.{x}_plain SET TBLPROPERTIES ('c' = 'd')",
    "ALTER TABLE shop.{x}_replaced RENAME TO shop.{x}_renamed",
    "CREATE VIEW shop.{x}_view AS SELECT id FROM shop.{x}_rows WHERE p = 1",
)
READ = (
    *(f"SELECT * FROM shop.{{x}}_{name}" for name in NAMES if name != "replaced"),
    *("SELECT * FROM shop.{x}_renamed", "SELECT * FROM shop.{x}_view"),
    *("DESCRIBE shop.{x}_plain", "SHOW TBLPROPERTIES shop.{x}_plain ('c')"),
)


def steps(texts: tuple[str, ...], engine: str) -> list[str]:
    return [text.replace("{x}", engine) for text in texts]


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    folder = tmp_path_factory.mktemp("hive")
    theirs, ours = (steps((*CHANGED, *READ), engine) for engine in ("theirs", "ours_"))
    database = f"CREATE DATABASE shop LOCATION '{folder}/shop'"
    return [
        turn("delta-spark", folder, 0, [database, *steps(MADE, "theirs")]),
        turn("delvec", folder, 1, [*steps(MADE, "ours_"), *theirs]),
        turn("delta-spark", folder, 2, ours),
        turn("delta-spark", folder, 3, steps(READ, "theirs")),
    ]


def turn(engine: str, folder: Path, number: int, texts: list[str]) -> list[Any]:
    """Let one engine have the metastore, which only one process can open at a time."""
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder}/metastore;create=true"
        ),
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    with open_child(engine, folder / "warehouse", conf) as child:
        child.begin(name=f"turn{number}", folder=str(folder), steps=texts)
        found = child.ended()
    return [same(each) for each in found]


def same(outcome: dict[str, Any]) -> Any:  # noqa: ANN401
    if "error" in outcome:
        return "an error"
    shown = [*outcome.get("columns", []), *outcome.get("rows", [])]
    return [each.replace("theirs", "x").replace("ours_", "x") for each in shown]


def test_each_works_on_tables_of_the_other(turns: list[list[Any]]) -> None:
    made, by_delvec = turns[1][: len(MADE)], turns[1][len(MADE) :]
    assert "an error" not in turns[0] + made + by_delvec
    for step, a, b in zip((*CHANGED, *READ), turns[2], by_delvec, strict=True):
        assert a == b, step
    assert turns[3] == by_delvec[len(CHANGED) :]
