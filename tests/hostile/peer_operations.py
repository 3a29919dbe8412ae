"""What users of delta-spark and deltalake do with a hostile table, by the names of our operations.

What has no counterpart is absent: an engine without it is not attacked that way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import deltalake
import pyarrow as pa

from tests.hostile.attack import Ground

Operations = dict[str, Callable[[Ground], Any]]


_READS: Final = ("read", "read on Spark", "read by the data source")
COMPARED: Final = (*_READS, "count")
"""Operations that return what can be compared with what delvec returns."""


def _sql(statement: str) -> Callable[[Ground], Any]:
    """Return an operation that runs a statement, in which `T` in braces stands for the table."""

    def run(ground: Ground) -> Any:  # noqa: ANN401
        table, clone = (f"delta.`{path}`" for path in (ground.table, ground.folder / "clone"))
        # Not `str.format`: a statement may have braces of its own.
        return ground.spark.sql(statement.replace("{T}", table).replace("{C}", clone)).collect()

    return run


class _Row(dict[str, Any]):
    """A row, by the names of its columns; also as one of Spark's is asked for."""

    def asDict(self, *, recursive: bool) -> dict[str, Any]:  # noqa: ARG002, N802
        return dict(self)


def _spark_rows(ground: Ground) -> list[_Row]:
    rows = ground.spark.read.format("delta").load(str(ground.table)).collect()
    return [_Row(row.asDict(recursive=True)) for row in rows]


def _spark_checkpoint(ground: Ground) -> None:
    jvm: Any = ground.spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    log.forTable(ground.spark._jsparkSession, str(ground.table)).checkpoint()


def _spark_changes(ground: Ground) -> Any:  # noqa: ANN401
    reading = ground.spark.read.format("delta").option("readChangeFeed", "true")
    return reading.option("startingVersion", 0).load(str(ground.table)).collect()


_MERGE: Final = "MERGE INTO {T} AS t USING (SELECT id FROM range(1, 3)) AS s ON t.id = s.id"

DELTA_SPARK: Final[Operations] = {
    "open": _sql("DESCRIBE DETAIL {T}"),
    "history": _sql("DESCRIBE HISTORY {T}"),
    **dict.fromkeys(_READS, _spark_rows),
    "changes": _spark_changes,
    "append": _sql("INSERT INTO {T} SELECT * FROM {T}"),
    "overwrite": _sql("INSERT OVERWRITE {T} SELECT * FROM {T}"),
    "delete": _sql("DELETE FROM {T} WHERE id % 2 = 0"),
    "delete by keys": _sql("DELETE FROM {T} WHERE id IN (0, 2, 4, 6, 8)"),
    "update": _sql("UPDATE {T} SET id = id + 100 WHERE id < 3"),
    "merge": _sql(
        "MERGE INTO {T} AS t USING (SELECT * FROM {T}) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "append an id": _sql("INSERT INTO {T} (id) VALUES (2L)"),
    "overwrite by an id": _sql("INSERT OVERWRITE {T} (id) VALUES (2L)"),
    "update all": _sql("UPDATE {T} SET id = id + 1"),
    "update to the default": _sql("UPDATE {T} SET word = DEFAULT"),
    "merge an id": _sql(f"{_MERGE} WHEN MATCHED THEN UPDATE SET id = s.id + 1"),
    "merge inserts": _sql(f"{_MERGE} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"),
    "delete all": _sql("DELETE FROM {T} WHERE id > 0"),
    "optimize": _sql("OPTIMIZE {T}"),
    "zorder": _sql("OPTIMIZE {T} ZORDER BY (id)"),
    "purge": _sql("REORG TABLE {T} APPLY (PURGE)"),
    "vacuum": _sql("VACUUM {T} RETAIN 0 HOURS"),
    "lite vacuum": _sql("VACUUM {T} LITE RETAIN 0 HOURS"),
    "checkpoint": _spark_checkpoint,
    "restore": _sql("RESTORE TABLE {T} TO VERSION AS OF 2"),
    "clone": _sql("CREATE TABLE {C} SHALLOW CLONE {T}"),
    "generate manifest": _sql("GENERATE symlink_format_manifest FOR TABLE {T}"),
    "set properties": _sql("ALTER TABLE {T} SET TBLPROPERTIES ('hostile' = 'no')"),
    "set a property": _sql("ALTER TABLE {T} SET TBLPROPERTIES ('a' = 'b')"),
    "count": lambda ground: _sql("SELECT count(*) FROM {T}")(ground)[0][0],
    "vacuum by retention": _sql("VACUUM {T}"),
}


def _table(ground: Ground) -> deltalake.DeltaTable:
    import deltalake  # noqa: PLC0415 - a child imports it, where its memory is bounded

    return deltalake.DeltaTable(str(ground.table))


def _rows(ground: Ground) -> pa.Table:
    import deltalake  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    query = deltalake.QueryBuilder().register("t", _table(ground))
    return pa.table(query.execute("SELECT * FROM t").read_all())


def _ids(*ids: int) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    return pa.table({"id": pa.array(ids, pa.int64())})


def _write(
    mode: str, rows: Callable[[Ground], pa.Table], **options: str
) -> Callable[[Ground], Any]:
    def run(ground: Ground) -> None:
        import deltalake  # noqa: PLC0415

        write: Any = deltalake.write_deltalake
        write(str(ground.table), rows(ground), mode=mode, **options)

    return run


def _merged(ground: Ground, rows: pa.Table) -> deltalake.table.TableMerger:
    return _table(ground).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")


def _merge_ids(ground: Ground) -> deltalake.table.TableMerger:
    return _merged(ground, _ids(1, 2))


def _merge(ground: Ground) -> Any:  # noqa: ANN401
    merge = _merged(ground, _rows(ground))
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _vacuum(*, full: bool) -> Callable[[Ground], Any]:
    return lambda ground: _table(ground).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=full
    )


_ID: Final = {"id": "s.id"}
_NEXT_ID: Final = {"id": "s.id + 1"}
DELTALAKE: Final[Operations] = {
    "open": _table,
    "history": lambda ground: _table(ground).history(),
    **dict.fromkeys(_READS, lambda ground: [_Row(row) for row in _rows(ground).to_pylist()]),
    "changes": lambda ground: _table(ground).load_cdf(starting_version=0).read_all(),
    "append": _write("append", _rows),
    "overwrite": _write("overwrite", _rows),
    "append an id": _write("append", lambda _: _ids(2), schema_mode="merge"),
    "overwrite by an id": _write("overwrite", lambda _: _ids(2), schema_mode="merge"),
    "update all": lambda ground: _table(ground).update({"id": "id + 1"}),
    "merge an id": lambda ground: _merge_ids(ground).when_matched_update(_NEXT_ID).execute(),
    "merge inserts": lambda ground: _merge_ids(ground).when_not_matched_insert(_ID).execute(),
    "delete all": lambda ground: _table(ground).delete("id > 0"),
    "delete": lambda ground: _table(ground).delete("id % 2 = 0"),
    "delete by keys": lambda ground: _table(ground).delete("id IN (0, 2, 4, 6, 8)"),
    "update": lambda ground: _table(ground).update({"id": "id + 100"}, predicate="id < 3"),
    "merge": _merge,
    "optimize": lambda ground: _table(ground).optimize.compact(),
    "zorder": lambda ground: _table(ground).optimize.z_order(["id"]),
    "vacuum": _vacuum(full=True),
    "lite vacuum": _vacuum(full=False),
    "checkpoint": lambda ground: _table(ground).create_checkpoint(),
    "clean log": lambda ground: _table(ground).cleanup_metadata(),
    "restore": lambda ground: _table(ground).restore(2),
    "generate manifest": lambda ground: _table(ground).generate(),
    **dict.fromkeys(
        ("set properties", "set a property"),
        lambda ground: _table(ground).alter.set_table_properties(
            {"hostile": "no"}, raise_if_not_exists=False
        ),
    ),
    "count": lambda ground: _rows(ground).num_rows,  # its own count() is None without statistics
    "vacuum by retention": lambda ground: _table(ground).vacuum(dry_run=False, full=True),
}
