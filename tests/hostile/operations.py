"""What a user does with a hostile table: with delvec, and with the engines it is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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


@dataclass(frozen=True)
class Operation:
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


def _merge(ground: Ground) -> Any:  # noqa: ANN401
    table = _delta(ground)
    merge = table.merge(table.to_arrow(), on="t.id = s.id")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _zorder(ground: Ground) -> Any:  # noqa: ANN401
    table = _delta(ground)
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
    for name in ("inspect", "check", "detail"):
        report = getattr(table, name)()
        shown[f"str of {name}"] = f"{report}\n{report!r}"
        shown[f"page of {name}"] = report._repr_html_()
    shown["whole page of inspect"] = table.inspect().to_html()
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


def _rows(ground: Ground) -> Any:  # noqa: ANN401
    return ground.spark.range(2, 3)


def _merge_ids(ground: Ground) -> Any:  # noqa: ANN401
    return _delta(ground).merge(_rows(ground).union(ground.spark.range(1, 2)), "t.id = s.id")


def _change_feed(ground: Ground) -> Any:  # noqa: ANN401
    table = _delta(ground)
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


def _show_iceberg(ground: Ground) -> dict[str, str]:
    """Show an Iceberg table as text and in a notebook."""
    table, shown = _in_lake(ground), {}
    for name in ("inspect", "check", "detail"):
        report = getattr(table, name)()
        shown[f"str of {name}"] = f"{report}\n{report!r}"
        shown[f"page of {name}"] = report._repr_html_()
    shown["whole page of inspect"] = table.inspect().to_html()
    return shown


OPERATIONS: Final[dict[str, Operation]] = {
    # Without a session.
    "open": Operation(_offline),
    "read": Operation(lambda ground: _offline(ground).to_arrow().to_pylist()),
    "history": Operation(lambda ground: _offline(ground).arrow_history()),
    "check": Operation(lambda ground: _offline(ground).check()),
    "delvec check": Operation(  # opens the table as a part of the check
        lambda ground: delvec.DeltaTable(Storage.open(ground.table)).check()
    ),
    "inspect": Operation(lambda ground: _offline(ground).inspect()),
    "show": Operation(_show),
    "vacuum": Operation(lambda ground: _offline(ground).vacuum(retention_hours=0, force=True)),
    "lite vacuum": Operation(
        lambda ground: _offline(ground).vacuum(lite=True, retention_hours=0, force=True)
    ),
    "clean log": Operation(lambda ground: _offline(ground).clean_log()),
    "checkpoint": Operation(lambda ground: _offline(ground).checkpoint()),
    "restore": Operation(lambda ground: _offline(ground).restore(2)),
    "generate manifest": Operation(lambda ground: _offline(ground).generate_manifest()),
    "clone": Operation(lambda ground: _offline(ground).clone(ground.folder / "clone")),
    "read, fenced": Operation(lambda ground: _fenced(ground).to_arrow().to_pylist()),
    "check, fenced": Operation(lambda ground: _fenced(ground).check()),
    "inspect, fenced": Operation(lambda ground: _fenced(ground).inspect()),
    "restore, fenced": Operation(lambda ground: _fenced(ground).restore(2)),
    "clone, fenced": Operation(lambda ground: _fenced(ground).clone(ground.folder / "clone")),
    "set properties": Operation(lambda ground: _offline(ground).set_properties({"hostile": "no"})),
    "vacuum by retention": Operation(lambda ground: _offline(ground).vacuum()),
    "count": Operation(lambda ground: _offline(ground).count()),
    "count in batches": Operation(
        lambda ground: sum(batch.num_rows for batch in _offline(ground).to_batches())
    ),
    "set a property": Operation(lambda ground: _offline(ground).set_properties({"a": "b"})),
    "traces without Spark": Operation(lambda ground: _offline(ground).traces([("id", "=", 5)])),
    # With one.
    "read on Spark": Operation(lambda ground: _delta(ground).to_df().collect(), spark=True),
    "append": Operation(
        lambda ground: _delta(ground).append(_delta(ground).to_arrow()), spark=True
    ),
    "overwrite": Operation(
        lambda ground: _delta(ground).overwrite(_delta(ground).to_arrow()), spark=True
    ),
    "delete": Operation(lambda ground: _delta(ground).delete("id % 2 = 0"), spark=True),
    "delete by keys": Operation(
        lambda ground: _delta(ground).delete(keys=[0, 2, 4, 6, 8], on="id"), spark=True
    ),
    "update": Operation(
        lambda ground: _delta(ground).update({"id": "id + 100"}, "id < 3"), spark=True
    ),
    "merge": Operation(_merge, spark=True),
    "zorder": Operation(_zorder, spark=True),
    "traces": Operation(lambda ground: _delta(ground).traces("id = 1"), spark=True),
    "changes": Operation(
        lambda ground: _delta(ground).changes(start_version=0).collect(), spark=True
    ),
    "append ids": Operation(
        lambda ground: _delta(ground).append(ground.spark.range(3)), spark=True
    ),
    # The rows of the table are in `id` and `word`; new ones have an `id` of 2.
    "append an id": Operation(lambda ground: _delta(ground).append(_rows(ground)), spark=True),
    "overwrite by an id": Operation(
        lambda ground: _delta(ground).overwrite(_rows(ground)), spark=True
    ),
    "update all": Operation(lambda ground: _delta(ground).update({"id": "id + 1"}), spark=True),
    "update to the default": Operation(
        lambda ground: _delta(ground).update({"word": "DEFAULT"}), spark=True
    ),
    "merge an id": Operation(
        lambda ground: _merge_ids(ground).when_matched_update({"id": "s.id + 1"}).execute(),
        spark=True,
    ),
    "merge inserts": Operation(
        lambda ground: _merge_ids(ground).when_not_matched_insert({"id": "s.id"}).execute(),
        spark=True,
    ),
    "delete all": Operation(lambda ground: _delta(ground).delete("id > 0"), spark=True),
    "change feed": Operation(_change_feed, spark=True),
    "show Iceberg": Operation(_show_iceberg, spark=True),
    "optimize": Operation(lambda ground: _delta(ground).optimize(), spark=True),
    "purge": Operation(lambda ground: _delta(ground).purge(), spark=True),
    "read on Spark, fenced": _in_fenced_session(lambda ground: _delta(ground).to_df().collect()),
    "optimize, fenced": _in_fenced_session(lambda ground: _delta(ground).optimize()),
    "purge, fenced": _in_fenced_session(lambda ground: _delta(ground).purge()),
    "delete, fenced": _in_fenced_session(lambda ground: _delta(ground).delete("id = 3")),
    "update, fenced": _in_fenced_session(
        lambda ground: _delta(ground).update({"id": "id + 1"}, "id = 3")
    ),
    "convert, fenced": _in_fenced_session(_convert),
    "read by the data source, fenced": _in_fenced_session(_by_source),
    "read Iceberg, fenced": _in_fenced_session(lambda ground: _in_lake(ground).to_df().collect()),
    "compact Iceberg, fenced": _in_fenced_session(
        lambda ground: _in_lake(ground).compact(options={"rewrite-all": True})
    ),
    "check Iceberg": Operation(lambda ground: _in_lake(ground).check(), spark=True),
    "inspect Iceberg": Operation(lambda ground: _in_lake(ground).inspect(), spark=True),
    "compact Iceberg": Operation(
        lambda ground: _in_lake(ground).compact(options={"rewrite-all": True}), spark=True
    ),
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
