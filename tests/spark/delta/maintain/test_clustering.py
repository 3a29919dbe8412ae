"""Clustered tables: OPTIMIZE of delvec and of delta-spark go on where the other has stopped."""

from __future__ import annotations

import json

import pytest

from delvec import DeltaTable
from delvec.errors import ConflictError, InvalidArgumentError
from tests.delta import log_files
from tests.delta.write.write_checks import before_commit
from tests.spark.delta.lake import Lake

pytestmark = pytest.mark.spark

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
ROWS = (
    "INSERT INTO {T} SELECT id, named_struct('b', int(pmod(hash(id), 1000))), 'z' FROM range({N})"
)


def columns_of(lake: Lake) -> list[str]:
    detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.path}`").first()
    assert detail is not None
    found: list[str] = detail.clusteringColumns
    return found


def cubes(lake: Lake) -> dict[str, set[str]]:
    """Return the clustering columns of each cube of live files, by its id; "" for no cube."""
    found: dict[str, set[str]] = {}
    for entry in lake.bare.snapshot().files.entries():
        tags = entry.add.get("tags") or {}
        assert entry.add.get("clusteringProvider") == ("liquid" if tags else None)
        found.setdefault(tags.get("ZCUBE_ID", ""), set()).add(tags.get("ZCUBE_ZORDER_BY", ""))
    return found


def test_each_engine_keeps_the_cubes_of_the_other(lake: Lake) -> None:
    columns = "id BIGINT, s STRUCT<b: INT>, z STRING"
    lake.sql(f"CREATE TABLE {{T}} ({columns}) USING delta CLUSTER BY (id, s.b) {MAPPED}")
    lake.sql(ROWS.replace("{N}", "200"))
    lake.table.rename_column("s", "t")
    report = lake.table.optimize()
    assert (report.files_added, report.rows_copied) == (1, 200)
    assert list(cubes(lake).values()) == [{'["id","t.b"]'}]
    ours = lake.table.version
    lake.sql("OPTIMIZE {T}")
    assert lake.table.version == ours
    lake.sql(ROWS.replace("{N}", "500"), "OPTIMIZE {T}")
    theirs = lake.table.version
    assert lake.table.optimize().version is None
    assert lake.table.optimize(full=True).version is None
    lake.table.cluster_by(["z"])
    assert (columns_of(lake), lake.table.optimize().version) == (["z"], None)
    lake.table.optimize(full=True)
    assert list(cubes(lake).values()) == [{'["z"]'}]
    lake.sql("OPTIMIZE {T}", "OPTIMIZE {T} FULL")
    assert (lake.table.version, lake.rows().total()) == (theirs + 2, 700)


def test_new_files_join_small_cubes_and_leave_large_ones(lake: Lake) -> None:
    columns = "id long, s struct<b int>, z string"
    table = DeltaTable.create(lake.spark, lake.path, columns, cluster_by=["s.b", "id"])
    lake.sql(ROWS.replace("{N}", "20000"))
    table.optimize(target_file_size=40_000, min_file_size=0)
    [large] = cubes(lake)
    bounds = [json.loads(each["stats"]) for each in log_files.live_adds(lake.path)]
    ends = [(each["minValues"]["s"]["b"], each["maxValues"]["s"]["b"]) for each in bounds]
    assert sum(high - low < 600 for low, high in ends) * 2 >= len(bounds) >= 3
    for small in (1, 1, 2):  # one, both in one, and then another beside these
        lake.sql(ROWS.replace("{N}", "10"))
        assert set(cubes(lake)) > {large}
        table.optimize()
        assert len(cubes(lake)) == 2
        assert large in cubes(lake), small
    table.delete("id % 3 = 0")
    assert "" not in cubes(lake)  # a vector leaves a file in its cube
    assert table.optimize().rows_copied == lake.rows().total()
    assert len(cubes(lake)) == 1


def test_clustering_is_kept_and_changed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "id long, s struct<b int>, z string"
    mapped = {"delta.columnMapping.mode": "name"}
    table = DeltaTable.create(lake.spark, lake.path, columns, (), mapped, cluster_by=["ID", "s.b"])
    lake.sql(ROWS.replace("{N}", "10"))
    frame = lake.spark.sql("SELECT 1L AS id, named_struct('b', 2) AS s, 'y' AS z, 3 AS more")
    table.append(frame, merge_schema=True)
    table.merge(frame, on="t.id = s.id").when_matched_update_all().execute()
    table.rename_column("id", "key")
    assert columns_of(lake) == ["key", "s.b"]
    table.overwrite(table.to_df().where("key < 5"), replace_schema=True)
    assert columns_of(lake) == ["key", "s.b"]
    copy = lake.beside("copy")
    table.clone(copy.path)
    table.cluster_by([])
    assert (columns_of(copy), columns_of(lake)) == (["key", "s.b"], [])
    table.restore(table.version - 1)
    assert columns_of(lake) == ["key", "s.b"]
    with pytest.raises(InvalidArgumentError, match="clustered by it"):
        table.drop_column("key")
    before_commit(monkeypatch, lambda: copy.table.cluster_by(["z"]))
    with pytest.raises(ConflictError, match="the columns by which the table is clustered"):
        copy.table.drop_column("z", max_retries=0)
    assert columns_of(copy) == ["z"]


def test_wrong_columns_are_refused(lake: Lake) -> None:
    columns = "id long, flag boolean, m map<string, int>, p string, q int"
    few = {"delta.dataSkippingNumIndexedCols": "4"}
    table = DeltaTable.create(lake.spark, lake.path, columns, ["p"], few)
    for names, parts, what in (
        (["id"], ["p"], "clustered by id and partitioned by p"),
        (["flag"], [], "which is boolean"),
        (["m"], [], "which is map"),
        (["m.key"], [], "no 'key' in it"),
        (["q"], [], "no statistics"),
        (["id", "ID"], [], "twice"),
        (["nosuch"], [], "nosuch"),
        (["id", "p", "q", "flag", "m"], [], "4 columns at most"),
    ):
        with pytest.raises(InvalidArgumentError, match=what):
            DeltaTable.create(
                lake.spark, lake.beside("other").path, columns, parts, few, cluster_by=names
            )
    with pytest.raises(InvalidArgumentError, match="partitioned by p"):
        table.cluster_by(["id"])
    with pytest.raises(InvalidArgumentError, match="is not clustered"):
        table.optimize(full=True)
