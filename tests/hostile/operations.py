"""What a user does with a hostile table: with delvec, and with the engines it is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

import delvec
import delvec.errors
from delvec.cli import main
from delvec.delta.schema.types import PrimitiveType
from delvec.identifiers import quote
from delvec.inspection.report import InspectReport
from delvec.storage import Storage
from delvec.storage.fence import ALLOWED_PATHS
from tests.cli.runner import separate
from tests.hostile.attack import Ground
from tests.hostile.iceberg_tables import NAME, opened

_ROW: Final = pa.table({"id": [9], "s": ["x"]})


IN_LAKE: Final = "lake.hostile.crossing"  # the Iceberg table of attacks by paths


class Operation(NamedTuple):
    """What is done, and whether it needs a JVM."""

    run: Callable[[Ground], Any]
    spark: bool = False


def _offline(ground: Ground) -> delvec.DeltaTable:
    return delvec.DeltaTable.for_path(None, str(ground.table))


def _shown(report: Any) -> Any:  # noqa: ANN401
    """Show a report in all its forms, and give it back."""
    str(report)
    json.dumps(report.to_json())
    if isinstance(report, InspectReport):
        report.to_html()
    return report


def _delta(ground: Ground) -> delvec.DeltaTable:
    return delvec.DeltaTable.for_path(ground.spark, str(ground.table))


def _on(
    opened: Callable[[Ground], delvec.DeltaTable],
    run: Callable[[delvec.DeltaTable], Any],
    *,
    spark: bool = False,
) -> Operation:
    return Operation(lambda ground: run(opened(ground)), spark)


def _merge(table: delvec.DeltaTable) -> Any:  # noqa: ANN401
    merge = table.merge(table.to_arrow(), on="t.id = s.id")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _zorder(table: delvec.DeltaTable) -> Any:  # noqa: ANN401
    named = [each for each in table.schema.names if each not in table.partition_columns]
    plain = [each for each in named if isinstance(table.schema.field(each).type, PrimitiveType)]
    return table.optimize(zorder_by=[quote(each) for each in plain[:3]])


_SHOWING: Final = ("history", "inspect", "check", "detail", "schema", "properties", "files")


def _show(ground: Ground) -> dict[str, str]:
    """Show a table in all ways: by commands, and by Python as text and in a notebook."""
    table, shown = _offline(ground), {}
    for name in _SHOWING:  # without colours, so that any escape is one of the table
        done = separate().invoke(main, [name, str(ground.table)], env={"COLUMNS": "120"})
        assert isinstance(done.exception, SystemExit | None), done.exception
        shown[f"delvec {name}"] = done.stdout + done.stderr
    return shown | _show_reports(table)


def _show_reports(table: delvec.DeltaTable | delvec.IcebergTable) -> dict[str, str]:
    shown = {"whole page of inspect": table.inspect().to_html()}
    for name in ("inspect", "check", "detail"):
        report = getattr(table, name)()
        shown[f"str of {name}"] = f"{report}\n{report!r}"
        shown[f"page of {name}"] = report._repr_html_()
    return shown


def _fenced(ground: Ground) -> delvec.DeltaTable:
    allowed = [str(ground.folder / "allowed")]
    return delvec.DeltaTable.for_path(None, str(ground.table), allow_paths=allowed)


def _in_fenced_session(work: Callable[[Ground], Any]) -> Operation:
    """Fence the session for one operation."""

    def run(ground: Ground) -> Any:  # noqa: ANN401
        ground.spark.conf.set(ALLOWED_PATHS, str(ground.folder / "allowed"))
        try:
            return work(ground)
        finally:
            ground.spark.conf.unset(ALLOWED_PATHS)

    return Operation(run, spark=True)


def _in_lake(ground: Ground) -> delvec.IcebergTable:
    return delvec.IcebergTable.for_name(ground.spark, IN_LAKE)


def _compact(ground: Ground) -> Any:  # noqa: ANN401
    return _in_lake(ground).compact(options={"rewrite-all": True})


def _convert(ground: Ground) -> Any:  # noqa: ANN401
    ground.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.hostile")
    ground.spark.sql("DROP TABLE IF EXISTS lake.hostile.converted PURGE")
    return delvec.convert(ground.spark, str(ground.table), "lake.hostile.converted")


def _by_source(ground: Ground) -> Any:  # noqa: ANN401
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return ground.spark.read.format("delvec").load(str(ground.table)).collect()
    except PySparkException as error:  # Spark gives errors of Python tasks as text
        raise delvec.errors.DelvecError(str(error)[-1000:]) from None


def _ids(table: delvec.DeltaTable, start: int, end: int) -> DataFrame:
    assert table.spark is not None
    return table.spark.range(start, end)


def _merge_ids(table: delvec.DeltaTable) -> Any:  # noqa: ANN401
    return table.merge(_ids(table, 1, 3), "t.id = s.id")


def _change_feed(table: delvec.DeltaTable) -> Any:  # noqa: ANN401
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    table.delete("id = 1")
    return table.changes(2).collect()


def _iceberg(run: Callable[[delvec.IcebergTable], Any]) -> Operation:
    return Operation(lambda ground: run(opened(ground)), spark=True)


def _delete_keys(table: delvec.IcebergTable, parts: int = 1) -> delvec.IcebergTable:
    """Delete rows with even ids, by all other columns as their key."""
    rows = table.to_arrow()
    even = rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 0)).drop_columns(["id"])
    for part in range(parts):
        keys = even.take(list(range(part, len(even), parts)))
        table.delete_keys(keys, columns=keys.column_names)
    return table


# Of a Delta table, without a session.
_OFFLINE: Final[dict[str, Callable[[delvec.DeltaTable], Any]]] = {
    "open": lambda table: table,
    "read": lambda table: table.to_arrow().to_pylist(),
    "history": lambda table: table.arrow_history(),
    "check": lambda table: table.check(),
    "inspect": lambda table: table.inspect(),
    "vacuum": lambda table: table.vacuum(retention_hours=0, force=True),
    "lite vacuum": lambda table: table.vacuum(lite=True, retention_hours=0, force=True),
    "vacuum by retention": lambda table: table.vacuum(),
    "clean log": lambda table: table.clean_log(),
    "checkpoint": lambda table: table.checkpoint(),
    "restore": lambda table: table.restore(2),
    "generate manifest": lambda table: table.generate_manifest(),
    "set properties": lambda table: table.set_properties({"hostile": "no"}),
    "set a property": lambda table: table.set_properties({"a": "b"}),
    "count": lambda table: table.count(),
    "count in batches": lambda table: sum(batch.num_rows for batch in table.to_batches()),
    "traces without Spark": lambda table: table.traces([("id", "=", 5)]),
}
_ID: Final = {"id": "s.id"}
_NEXT_ID: Final = {"id": "s.id + 1"}
# With one.
_ON_SPARK: Final[dict[str, Callable[[delvec.DeltaTable], Any]]] = {
    "read on Spark": lambda table: table.to_df().collect(),
    "append": lambda table: table.append(table.to_arrow()),
    "overwrite": lambda table: table.overwrite(table.to_arrow()),
    "delete": lambda table: table.delete("id % 2 = 0"),
    "delete by keys": lambda table: table.delete(keys=[0, 2, 4, 6, 8], on="id"),
    "update": lambda table: table.update({"id": "id + 100"}, "id < 3"),
    "merge": _merge,
    "zorder": _zorder,
    "traces": lambda table: table.traces("id = 1"),
    "changes": lambda table: table.changes(start_version=0).collect(),
    "append ids": lambda table: table.append(_ids(table, 0, 3)),
    # The rows of the table are in `id` and `word`; new ones have an `id` of 2.
    "append an id": lambda table: table.append(_ids(table, 2, 3)),
    "overwrite by an id": lambda table: table.overwrite(_ids(table, 2, 3)),
    "update all": lambda table: table.update({"id": "id + 1"}),
    "update to the default": lambda table: table.update({"word": "DEFAULT"}),
    "merge an id": lambda table: _merge_ids(table).when_matched_update(_NEXT_ID).execute(),
    "merge inserts": lambda table: _merge_ids(table).when_not_matched_insert(_ID).execute(),
    "delete all": lambda table: table.delete("id > 0"),
    "change feed": _change_feed,
    "optimize": lambda table: table.optimize(),
    "purge": lambda table: table.purge(),
}

OPERATIONS: Final[dict[str, Operation]] = {
    **{name: _on(_offline, run) for name, run in _OFFLINE.items()},
    **{
        f"{name}, fenced": _on(_fenced, _OFFLINE[name])
        for name in ("read", "check", "inspect", "restore")
    },
    "clone": Operation(lambda ground: _offline(ground).clone(ground.folder / "clone")),
    "clone, fenced": Operation(lambda ground: _fenced(ground).clone(ground.folder / "clone")),
    "delvec check": Operation(  # opens the table as a part of the check
        lambda ground: delvec.DeltaTable(Storage.open(ground.table)).check()
    ),
    "show": Operation(_show),
    **{name: _on(_delta, run, spark=True) for name, run in _ON_SPARK.items()},
    **{
        f"{name}, fenced": _in_fenced_session(_on(_delta, _ON_SPARK[name]).run)
        for name in ("read on Spark", "optimize", "purge")
    },
    "delete, fenced": _in_fenced_session(lambda ground: _delta(ground).delete("id = 3")),
    "update, fenced": _in_fenced_session(
        lambda ground: _delta(ground).update({"id": "id + 1"}, "id = 3")
    ),
    "convert, fenced": _in_fenced_session(_convert),
    "read by the data source, fenced": _in_fenced_session(_by_source),
    "show Iceberg": Operation(lambda ground: _show_reports(_in_lake(ground)), spark=True),
    "read Iceberg, fenced": _in_fenced_session(lambda ground: _in_lake(ground).to_df().collect()),
    "compact Iceberg, fenced": _in_fenced_session(_compact),
    "check Iceberg": Operation(lambda ground: _in_lake(ground).check(), spark=True),
    "inspect Iceberg": Operation(lambda ground: _in_lake(ground).inspect(), spark=True),
    "compact Iceberg": Operation(_compact, spark=True),
    # Of an Iceberg table.
    "iceberg: open": _iceberg(lambda table: table),
    "iceberg: open in a catalog of folders": Operation(
        lambda ground: delvec.IcebergTable.for_name(ground.spark, "lake.hostile.t"), spark=True
    ),
    "iceberg: show": _iceberg(str),
    "iceberg: read": _iceberg(lambda table: table.to_arrow().to_pylist()),
    "iceberg: read of 1970": _iceberg(lambda table: table.to_df(timestamp="1970-01-01")),
    "iceberg: read of a tag": _iceberg(lambda table: table.to_df(tag="old")),
    "iceberg: history": _iceberg(lambda table: table.history().collect()),
    "iceberg: inspect": _iceberg(lambda table: _shown(table.inspect())),
    "iceberg: check": _iceberg(lambda table: _shown(table.check())),
    "iceberg: append": _iceberg(lambda table: table.append(_ROW)),
    "iceberg: append in a transaction": _iceberg(
        lambda table: table.append(_ROW, txn_app_id="app", txn_version=1)
    ),
    "iceberg: delete": _iceberg(lambda table: table.delete("s = 'a'")),
    "iceberg: delete of 2": _iceberg(lambda table: table.delete("id = 2")),
    "iceberg: resolve": _iceberg(lambda table: table.resolve(staging="stage")),
    "iceberg: rollback": _iceberg(lambda table: table.rollback(snapshot_id=1)),
    "iceberg: create_tag": _iceberg(lambda table: table.create_tag("release")),
    "iceberg: compact": _iceberg(lambda table: table.compact()),
    "iceberg: expire_snapshots": _iceberg(
        lambda table: table.expire_snapshots(timedelta(0), retain_last=1)
    ),
    "iceberg: remove_orphan_files": _iceberg(lambda table: table.remove_orphan_files()),
    "iceberg: remove_orphan_files of outside": Operation(
        lambda ground: opened(ground).remove_orphan_files(
            location=str(ground.outside / "victim/data")
        ),
        spark=True,
    ),
    "iceberg: clean_target": Operation(
        lambda ground: delvec.clean_target(ground.spark, NAME, retain_last=1), spark=True
    ),
    "iceberg: drop_index": _iceberg(lambda table: table.drop_index()),
    "iceberg: delete keys": _iceberg(_delete_keys),
    "iceberg: delete keys and resolve": _iceberg(lambda table: _delete_keys(table).resolve()),
    "iceberg: delete keys and consolidate": _iceberg(
        lambda table: _delete_keys(table, 2).consolidate_deletes()
    ),
    "iceberg: index": _iceberg(lambda table: table.build_index("id")),
}
