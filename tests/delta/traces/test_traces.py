"""Where matching rows and their values still are: in files of every kind, and in the log."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

import delvec
from delvec import DeltaTable
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.traces.history import read_history
from delvec.delta.traces.report import TracesReport
from delvec.errors import InvalidArgumentError
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, removed
from tests.delta.vacuum.aging import age

Action = dict[str, Any]

MARKER = "MARKER0815"
WHERE = [("name", "=", MARKER)]
# So that the bytes of a file tell whether a string is in it.
PLAIN: dict[str, Any] = {"use_dictionary": False, "compression": "NONE"}
# More digits than arithmetic keeps.
LONG = "12345678901234567890123456789012"
FIELDS = {"id": "long", "name": "string", "region": "string"}


def now_ms() -> int:
    return int(time.time() * 1000)


def statistics(columns: Mapping[str, Any]) -> str:
    """The statistics that an engine writes."""
    known = {
        name: [each for each in values if each is not None] for name, values in columns.items()
    }
    return json.dumps(
        {
            "numRecords": len(next(iter(columns.values()))),
            "minValues": {name: min(values) for name, values in known.items() if values},
            "maxValues": {name: max(values) for name, values in known.items() if values},
            "nullCount": {n: len(columns[n]) - len(values) for n, values in known.items()},
        }
    )


class People(TableBuilder):
    """A table of people, with a marked one among the three of a file."""

    # With a name after the marker instead, the marker is a bound of the statistics.
    third = "Bob"

    def file(
        self, name: str, first: int, *, marked: bool, region: str | None = None, folder: str = ""
    ) -> Action:
        """Write a file; give its add."""
        names = ["Zoe", MARKER if marked else "Tom", self.third]
        return self._rows(folder, name, [first, first + 1, first + 2], names, region)

    def purge(self, add: Action, name: str) -> None:
        """Rewrite a file as PURGE does: without the marked row."""
        region = add["partitionValues"].get("region")
        new = self._rows("", name, [1, 3], ["Zoe", self.third], region) | {"dataChange": False}
        gone = removed(add) | {"deletionTimestamp": now_ms(), "dataChange": False}
        self.commit({"remove": gone}, {"add": new})

    def _rows(
        self, folder: str, name: str, ids: list[int], names: list[str], region: str | None
    ) -> Action:
        columns: dict[str, Any] = {"id": ids, "name": names}
        values = {}
        if self.partition_columns:
            name, values = f"region={region}/{name}", {"region": region}
        else:
            columns["region"] = [region] * len(ids)
        table = pa.table(
            {n: pa.array(v, pa.int64() if n == "id" else pa.string()) for n, v in columns.items()}
        )
        add = self.write_file(folder + name, table, values, **PLAIN)
        return add | {"stats": statistics(columns)}


def traces(root: Path, where: Any = None) -> TracesReport:  # noqa: ANN401
    return DeltaTable.for_path(None, root).traces(WHERE if where is None else where)


def found(report: TracesReport) -> dict[str, set[str]]:
    """The paths by kind."""
    kinds: dict[str, set[str]] = {}
    for place in report.places:
        kinds.setdefault(place.kind, set()).add(place.path)
    return kinds


def holding(root: Path, text: str = MARKER) -> set[str]:
    """The files below a folder that have some bytes."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    }


def people(root: Path, **options: Any) -> People:  # noqa: ANN401
    table = People(root, fields=FIELDS, **options)
    table.create()
    return table


def test_a_table_without_such_rows_has_no_traces(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.add(table.file("a.parquet", 1, marked=False))
    report = traces(tmp_path)
    assert report.is_empty
    assert not report
    assert report.gone_at is None
    assert "nothing is left" in str(report)
    assert json.loads(json.dumps(report.to_json()))["is_empty"] is True
    assert (report.files, report.log_files) == (1, 2)


def test_each_place_has_its_kind_its_rows_its_versions_and_its_steps(tmp_path: Path) -> None:
    table = people(tmp_path)
    live, half, gone = (table.file(f"{n}.parquet", n, marked=True) for n in (1, 10, 20))
    table.commit({"add": live}, {"add": half}, {"add": gone})
    table.delete_rows(half, [1])
    moment = now_ms()
    table.commit({"remove": removed(gone) | {"deletionTimestamp": moment}})
    table.file("orphan.parquet", 30, marked=True)
    table.file("part.parquet", 40, marked=True, folder="_temporary/0/")
    table.file("cdc.parquet", 50, marked=True, folder="_change_data/")
    table.commit({"cdc": {"path": "_change_data/cdc.parquet", "partitionValues": {}, "size": 9}})
    report = traces(tmp_path)
    by_kind = {place.kind: place for place in report.places}
    assert found(report) == {
        "live": {"1.parquet"},
        "deleted": {"10.parquet"},
        "removed": {"20.parquet"},
        "orphan": {"orphan.parquet"},
        "hidden": {"_temporary/0/part.parquet"},
        "change": {"_change_data/cdc.parquet"},
    }
    assert all(place.rows == 1 for place in report.places)
    assert by_kind["live"].versions == (1, 4)
    assert by_kind["deleted"].versions == (1, 1)
    assert by_kind["removed"].versions == (1, 2)
    assert by_kind["change"].versions == (4, 4)
    assert by_kind["orphan"].versions is None
    actions = {kind: [str(s.action) for s in place.steps] for kind, place in by_kind.items()}
    assert actions["live"] == ["delete()", "purge()", "vacuum()"]
    assert actions["deleted"] == ["purge()", "vacuum()"]
    assert actions["removed"] == actions["orphan"] == actions["change"] == ["vacuum()"]
    assert "by hand" in actions["hidden"][0]
    week = timedelta(days=7)
    removal = datetime.fromtimestamp(moment / 1000, timezone.utc)
    due = by_kind["removed"].steps[0].not_before
    assert due is not None
    assert abs(due - removal - week) < timedelta(minutes=5)
    text = str(report)
    assert "run purge(), then vacuum() after 20" in text
    assert "reached by time travel to version 1" in text


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("change_feed", [False, True])
@pytest.mark.parametrize("third", ["Bob", "Uwe"])
def test_every_step_of_an_erasure_agrees_with_the_bytes_on_disk(
    tmp_path: Path, third: str, *, partitioned: bool, change_feed: bool
) -> None:
    table = people(
        tmp_path,
        partition_columns=["region"] if partitioned else [],
        properties={
            "delta.enableDeletionVectors": "true",
            "delta.logRetentionDuration": "interval 1 days",
        },
    )
    table.third = third
    add = table.file("a.parquet", 1, marked=True, region="north")
    other = table.file("b.parquet", 9, marked=False, region="south")
    table.commit({"add": add}, {"add": other})

    def agrees() -> set[str]:
        report = traces(tmp_path)
        paths = {place.path for place in report.places}
        assert paths == holding(tmp_path)
        assert report.is_empty == (not paths)
        return {place.kind for place in report.places}

    assert agrees() == {"live"} | ({"log"} if third == "Uwe" else set())
    [vector] = table.write_vectors([1])
    stats = json.loads(add["stats"]) | {"tightBounds": False}
    new = add | {"stats": json.dumps(stats), "deletionVector": vector}
    predicate = {"operationParameters": {"predicate": f"[\"(name = '{MARKER}')\"]"}}
    actions: list[Action] = [
        {"commitInfo": {"operation": "DELETE", **predicate}},
        {"remove": removed(add) | {"deletionTimestamp": now_ms()}},
        {"add": new},
    ]
    if change_feed:
        changed = table.file("c.parquet", 1, marked=True, region="north", folder="_change_data/")
        actions.append({"cdc": {n: changed[n] for n in ("path", "partitionValues", "size")}})
    table.commit(*actions)
    kinds = {"deleted", "log"} | ({"change"} if change_feed else set())
    assert agrees() == kinds

    table.purge(new, "c.parquet")
    assert agrees() == {"removed", "log"} | ({"change"} if change_feed else set())

    handle = DeltaTable.for_path(None, tmp_path)
    handle.vacuum()
    assert "removed" in agrees()  # the retention is not over
    handle.vacuum(retention_hours=0, force=True)
    assert agrees() == {"log"}

    handle.checkpoint()
    handle.clean_log()
    assert agrees() == {"log"}  # the log's retention is not over
    age(tmp_path / "_delta_log", days=3)
    report = traces(tmp_path)
    assert all(step.not_before is None for place in report.places for step in place.steps)
    handle.clean_log()
    assert agrees() == set()


def test_statistics_of_live_rows_do_not_hide_rows_that_a_vector_deletes(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True)
    table.add(add)
    [vector] = table.write_vectors([1])
    tight = statistics({"id": [1, 3], "name": ["Zoe", "Bob"]})
    stats = json.dumps(json.loads(tight) | {"numRecords": 3, "tightBounds": True})
    table.commit(
        {"remove": removed(add)}, {"add": add | {"stats": stats, "deletionVector": vector}}
    )
    assert "deleted" in found(traces(tmp_path))


def test_statistics_that_are_wrong_do_not_hide_live_rows(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True) | {
        "stats": statistics({"id": [1, 2, 3], "name": ["Ann", "Bea", "Cyd"]})
    }
    table.add(add)
    assert found(traces(tmp_path)) == {"live": {"a.parquet"}}


def test_the_condition_of_other_columns_counts_for_rows_and_for_the_log(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True) | {
        "stats": statistics({"id": [1, 2, 3], "name": ["Bob", MARKER, "Zoe"]})
    }
    live = {"minValues": {"name": MARKER}, "maxValues": {"name": MARKER}, "numRecords": 3}
    table.add(add | {"stats": json.dumps(live)})
    # The value is in the log, but of a row that does not match.
    assert traces(tmp_path, [("name", "=", MARKER), ("id", ">", 100)]).is_empty
    assert set(found(traces(tmp_path, [("name", "=", MARKER), ("id", "<", 100)]))) == {
        "live",
        "log",
    }


def test_a_condition_without_values_leaves_the_log_open_and_proves_nothing(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.add(table.file("a.parquet", 1, marked=False))
    report = traces(tmp_path, [("id", ">", 100)])
    assert report
    assert not report.is_empty
    assert not report.places
    assert not report.log_judged
    headline, _, rest = str(report).partition("\n")
    assert headline.endswith("version 1: no row was found, the log was not judged")
    assert "not searched  the log" in rest
    assert report.to_json()["is_empty"] is False
    assert report.log_files == 0


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ([("id", "=", 2)], "long"),
        ([("id", "in", [2, 77])], "long"),
        ([("day", "=", "2024-01-31")], "date"),
        ([("price", "=", 1.5)], "double"),
        ([("at", "=", "2024-01-31T12:00:00.123456+00:00")], "timestamp"),
    ],
)
def test_the_log_is_searched_for_values_of_any_type(
    tmp_path: Path, where: list[tuple[str, str, Any]], kind: str
) -> None:
    fields = {"id": "long", "day": "date", "price": "double", "at": "timestamp"}
    table = TableBuilder.made(tmp_path, fields=fields)
    bounds = {"id": 2, "day": "2024-01-31", "price": 1.5, "at": "2024-01-31T12:00:00.123Z"}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds}
    entry = {"path": "gone.parquet", "partitionValues": {}, "size": 9, "modificationTime": 1}
    table.add(entry | {"dataChange": True, "stats": json.dumps(stats)})
    table.commit({"remove": {"path": "gone.parquet", "dataChange": True}})
    assert found(traces(tmp_path, where)) == {"log": {f"_delta_log/{1:020}.json"}}, kind
    column, _, value = where[0]
    others = {"id": 3, "day": "2024-02-01", "price": 2.5, "at": "2024-01-31T13:00:00+00:00"}
    assert traces(tmp_path, [(column, "=", others[column])]).is_empty, value


def test_a_string_that_statistics_cut_is_found_by_its_beginning(tmp_path: Path) -> None:
    table = people(tmp_path)
    long = "x" * 20 + MARKER + "y" * 20
    bounds = {"minValues": {"name": long[:32]}, "maxValues": {"name": long[:32] + "\ufffd"}}
    entry = {"path": "gone.parquet", "partitionValues": {}, "size": 9, "modificationTime": 1}
    stats = json.dumps({"numRecords": 1, **bounds})
    table.add(entry | {"dataChange": True, "stats": stats})
    table.commit({"remove": {"path": "gone.parquet", "dataChange": True}})
    assert set(found(traces(tmp_path, [("name", "=", long)]))) == {"log"}
    assert traces(tmp_path, [("name", "=", "x" * 60)]).is_empty


def test_checkpoints_sidecars_and_checksum_files_are_searched(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True) | {
        "stats": statistics({"id": [1, 2, 3], "name": [MARKER, MARKER, "Zoe"]})
    }
    table.add(add)
    checkpoint = table.checkpoint([add])[0]
    crc = table.log / f"{1:020}.crc"
    crc.write_text(json.dumps({"numFiles": 1, "allFiles": [add]}))
    (table.log / "_last_checkpoint").write_text('{"version":1,"size":3}')
    sidecar = table.checkpoint_with_sidecars([add], as_json=True)[1]
    log = found(traces(tmp_path))["log"]
    assert {f"_delta_log/{path.name}" for path in (checkpoint, crc)} <= log
    assert f"_delta_log/_sidecars/{sidecar.name}" in log
    assert f"_delta_log/{1:020}.json" in log


@pytest.mark.parametrize("as_json", ["true", "false"])
def test_statistics_in_the_columns_of_a_checkpoint_count(tmp_path: Path, as_json: str) -> None:
    table = people(tmp_path, properties={"delta.checkpoint.writeStatsAsJson": as_json})
    table.third = "Uwe"  # so that the marked one is a bound
    table.add(table.file("a.parquet", 1, marked=True))
    DeltaTable.for_path(None, tmp_path).checkpoint()
    checkpoint = f"_delta_log/{1:020}.checkpoint.parquet"
    types = pq.read_schema(tmp_path / checkpoint).field("add").type
    assert (types.get_field_index("stats") >= 0) == (as_json == "true")
    assert checkpoint in found(traces(tmp_path))["log"]
    # Of other columns too, once the file is gone.
    (tmp_path / "a.parquet").unlink()
    assert found(traces(tmp_path, [("region", "=", MARKER)]))["log"] >= {checkpoint}


def test_the_text_of_operations_and_properties_is_searched(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.commit({"commitInfo": {"operationParameters": {"predicate": f"name='{MARKER}'"}}})
    table.commit({"commitInfo": {"operationParameters": {"predicate": f"name='{MARKER}2'"}}})
    table.commit({"commitInfo": {"userMetadata": f"request of {MARKER}"}})
    report = traces(tmp_path)
    assert found(report) == {"log": {f"_delta_log/{n:020}.json" for n in (1, 3)}}
    assert report.places[0].detail == "the text of an operation"


OF = f"request of {MARKER}"


def described(**field: Any) -> Action:  # noqa: ANN401
    """The metadata of a table whose column has something to tell."""
    name = {"name": "name", "type": "string", "nullable": True, "metadata": field}
    schema = json.dumps({"type": "struct", "fields": [name]})
    return {"id": "x", "format": {"provider": "parquet"}, "schemaString": schema}


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ({"metaData": described(comment=OF)}, "table metadata"),
        ({"metaData": described(CURRENT_DEFAULT=f"'{MARKER}'")}, "table metadata"),
        ({"metaData": described() | {"configuration": {"note": OF}}}, "table metadata"),
        ({"metaData": described() | {"configuration": {MARKER: "1"}}}, "table metadata"),
        ({"commitInfo": {"ticket": {"of": [{"who": MARKER}]}}}, "the text of an operation"),
        ({"commitInfo": {"tags": {"a": OF}}}, "the text of an operation"),
        ({"commitInfo": {"job": {"jobName": OF}}}, "the text of an operation"),
        ({"commitInfo": {"operationMetrics": {"n": MARKER}}}, "the text of an operation"),
        ({"txn": {"appId": OF, "version": 1}}, "table metadata"),
        ({"domainMetadata": {"domain": "x", "configuration": OF}}, "table metadata"),
        ({"vendorNote": {"a": {"b": [OF]}}}, "an action"),
        ({"vendorNote": OF}, "an unknown action"),
    ],
)
@pytest.mark.parametrize("where", ["commit", "compacted", "checksum", "hint"])
def test_every_string_of_the_log_counts_whatever_its_key(
    tmp_path: Path, action: Action, what: str, where: str
) -> None:
    table = people(tmp_path)
    if where == "commit":
        path = table.commit(action, {"metaData": table.metadata()})
    else:
        name = {"compacted": f"{0:020}.{1:020}.compacted.json", "checksum": f"{0:020}.crc"}
        path = table.log / name.get(where, "_last_checkpoint")
        written = json.dumps(action)
        if where == "checksum":
            names = {"metaData": "metadata", "txn": "setTransactions"}
            [(kind, body)] = action.items()
            listed = [body] if kind in ("txn", "domainMetadata") else body
            written, what = json.dumps({names.get(kind, kind): listed}), ""
        elif where == "hint":
            written = json.dumps({"version": 0, "v2Checkpoint": {"nonFileActions": [action]}})
        path.write_text(written)
    [place] = traces(tmp_path).places
    assert (place.kind, place.path) == ("log", f"_delta_log/{path.name}")
    assert what in place.detail


@pytest.mark.parametrize("as_json", [True, False])
def test_every_string_of_a_checkpoint_counts(tmp_path: Path, *, as_json: bool) -> None:
    table = people(tmp_path, properties={"note": OF})
    add = table.file("a.parquet", 1, marked=False) | {"tags": {"why": OF}}
    manifest, *sidecars = table.checkpoint_with_sidecars([add], as_json=as_json)
    named = {place.path for place in traces(tmp_path).places}
    assert {f"_delta_log/{manifest.name}", f"_delta_log/_sidecars/{sidecars[0].name}"} <= named
    assert f"_delta_log/_sidecars/{sidecars[1].name}" not in named


@pytest.mark.parametrize(
    ("value", "info", "is_found"),
    [
        (47110815, {"userMetadata": "GDPR request of customer 47110815"}, True),
        (47110815, {"n": 47110815}, True),
        (47110815, {"n": 4.7110815e7}, True),
        (47110815, {"txnId": "47110815-0000-4000-8000-000000000000"}, False),
        (47110815, {"timestamp": 47110815, "readVersion": 47110815}, False),
        (47110815, {"operationMetrics": {"n": "147110815"}}, False),
        # A short one counts in what people write, or beside the name of its column.
        (7, {"userMetadata": "request of customer 7"}, True),
        (7, {"operationParameters": {"predicate": "id = 7"}}, True),
        (7, {"operationMetrics": {"numFiles": "7"}, "engineInfo": "Spark/7.0"}, False),
    ],
)
def test_numbers_of_the_log_count_by_their_value(
    tmp_path: Path, value: int, info: Action, *, is_found: bool
) -> None:
    people(tmp_path).commit({"commitInfo": info})
    assert bool(traces(tmp_path, [("id", "=", value)])) == is_found


def test_a_predicate_with_an_earlier_name_of_the_column_counts(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, protocol=MAPPING)
    table.commit({"protocol": MAPPING}, {"metaData": mapped(("customer", "col-1", "long"))})
    deleted = table.commit({"commitInfo": {"operationParameters": {"predicate": "(Customer = 7)"}}})
    table.commit({"metaData": mapped(("client", "col-1", "long"))})
    report = traces(tmp_path, [("client", "=", 7)])
    assert found(report) == {"log": {f"_delta_log/{deleted.name}"}}


def test_comments_in_the_footers_of_data_files_count(tmp_path: Path) -> None:
    table = people(tmp_path)
    key = "org.apache.spark.sql.parquet.row.metadata"
    for name, field in (("a", {"comment": OF}), ("b", {"comment": "plain"})):
        add = table.file(f"{name}.parquet", 1, marked=False)
        rows = pq.read_table(tmp_path / add["path"])
        kept = rows.replace_schema_metadata({key: described(**field)["schemaString"]})
        pq.write_table(kept, tmp_path / add["path"])
        table.add(add | {"size": (tmp_path / add["path"]).stat().st_size})
    report = traces(tmp_path)
    assert found(report) == {"footer": {"a.parquet"}}
    assert "rewrite its files by optimize(zorder_by), then vacuum()" in str(report)


def test_what_the_newest_version_says_has_to_be_changed_first(tmp_path: Path) -> None:
    table = people(tmp_path, properties={"note": OF})
    [place] = traces(tmp_path).places
    assert [step.action for step in place.steps] == [
        "give the table other comments, defaults and properties",
        "checkpoint()",
        "clean_log()",
    ]
    assert "0.json" in place.path
    assert table.version == 0


def test_a_report_is_a_record_and_holds_digests_if_asked(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    table.add(table.file("a.parquet", 1, marked=False, region=MARKER))
    handle = DeltaTable.for_path(None, tmp_path)
    report = handle.traces([("region", "in", [MARKER])], redact=True)
    record = report.to_json()
    assert MARKER not in json.dumps(record) + str(report)
    digest = hashlib.sha256(f"{table.metadata()['id']}:{MARKER}".encode()).hexdigest()[:32]
    assert record["condition"] == f"[('region', 'in', ['sha256:{digest}'])]"
    assert record["places"][0]["path"] == f"region=sha256:{digest}/a.parquet"
    assert record["delvec"] == delvec.__version__
    assert record["table_id"] == table.metadata()["id"]
    assert (record["version"], record["host"]) == (1, socket.gethostname())
    assert datetime.fromisoformat(record["time"]).tzinfo is not None
    assert MARKER in handle.traces([("region", "=", MARKER)]).to_json()["condition"]


def test_partition_values_count_in_rows_the_log_and_names(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    add = table.file("a.parquet", 1, marked=False, region="far%2Foff") | {
        "partitionValues": {"region": "far/off"},
        "path": "region=far%252Foff/a.parquet",
    }
    table.add(add)
    table.commit({"remove": removed(add)})
    table.file("b.parquet", 1, marked=False, region="far%2Foff")
    (tmp_path / "region=far%2Foff/_SUCCESS").touch()
    report = traces(tmp_path, [("region", "=", "far/off")])
    assert found(report) == {
        "removed": {"region=far%2Foff/a.parquet"},
        "orphan": {"region=far%2Foff/b.parquet"},
        "name": {"region=far%2Foff/_SUCCESS"},
        "log": {f"_delta_log/{n:020}.json" for n in (1, 2)},
    }
    assert traces(tmp_path, [("region", "=", "near")]).is_empty


def test_tombstones_keep_a_partition_value_in_checkpoints_until_they_expire(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    add = table.file("a.parquet", 1, marked=False, region="north")
    table.add(add)
    moment = now_ms()
    table.commit({"remove": removed(add) | {"deletionTimestamp": moment}})
    DeltaTable.for_path(None, tmp_path).vacuum(retention_hours=0, force=True)
    report = traces(tmp_path, [("region", "=", "north")])
    assert set(found(report)) == {"log"}
    week = datetime.fromtimestamp(moment / 1000, timezone.utc) + timedelta(days=7)
    for place in report.places:
        first, last = place.steps
        assert (first.action, last.action) == ("checkpoint()", "clean_log()")
        assert first.not_before == week
        assert last.not_before is not None
        assert timedelta(days=30) <= last.not_before - week <= timedelta(days=31)


def test_an_orphan_whose_partition_nobody_knows_could_hold_anything(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    rows = pa.table({"id": [1], "name": ["Zoe"]})
    pq.write_table(rows, tmp_path / "lost.parquet")
    report = traces(tmp_path, [("region", "=", "north")])
    assert found(report) == {"unreadable": {"lost.parquet"}}
    assert "region is not known" in report.places[0].detail
    assert traces(tmp_path, [("name", "=", "Tom")]).is_empty
    assert table.version == 0


def mapped(*columns: tuple[str, str, str]) -> Action:
    """The metadata of a table with column mapping, of names, physical names and types."""
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": physical,
            },
        }
        for number, (name, physical, kind) in enumerate(columns, 1)
    ]
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    return {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": properties | {"delta.enableDeletionVectors": "true"},
    }


MAPPING = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "columnMapping"],
    "writerFeatures": ["deletionVectors", "columnMapping"],
}


def test_a_renamed_column_is_found_under_its_new_name(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, protocol=MAPPING)
    table.commit({"protocol": MAPPING}, {"metaData": mapped(("old", "col-1", "string"))})
    add = table.write_file("a.parquet", {"col-1": [MARKER, "Bob"]}) | {
        "stats": json.dumps({"numRecords": 2, "minValues": {"col-1": MARKER}})
    }
    table.add(add)
    table.commit({"metaData": mapped(("name", "col-1", "string"))})
    assert set(found(traces(tmp_path))) == {"live", "log"}
    # The old name means the same column, of older versions.
    report = traces(tmp_path, [("old", "=", MARKER)])
    assert set(found(report)) == {"live", "log"}
    assert "columns of version 1" in report.notes[0]


def test_a_dropped_column_is_searched_in_live_files_too(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, protocol=MAPPING)
    both = mapped(("id", "col-1", "long"), ("name", "col-2", "string"))
    table.commit({"protocol": MAPPING}, {"metaData": both})
    table.append("old.parquet", {"col-1": [1], "col-2": [MARKER]})
    table.commit({"metaData": mapped(("id", "col-1", "long"))})
    table.append("new.parquet", {"col-1": [2]})
    report = traces(tmp_path)
    assert found(report)["dropped"] == {"old.parquet"}
    assert [step.action for step in report.places[0].steps] == ["purge()", "vacuum()"]
    # A new column of the same name is another one; both are searched.
    table.commit({"metaData": mapped(("id", "col-1", "long"), ("name", "col-9", "string"))})
    table.append("newer.parquet", {"col-1": [3], "col-9": [MARKER]})
    both_found = found(traces(tmp_path))
    assert (both_found["dropped"], both_found["live"]) == ({"old.parquet"}, {"newer.parquet"})
    # Rows that lack the column are null; those that have the old one are not matched by that.
    nulls = traces(tmp_path, [("name", "=", None)])
    assert found(nulls)["live"] == {"old.parquet", "new.parquet"}


def test_files_from_before_a_column_was_added_or_widened_are_read(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path, fields={"id": "integer"})
    old = table.append("old.parquet", {"id": pa.array([1, 2], pa.int32())})
    table.fields = {"id": "long", "name": "string"}
    table.commit({"metaData": table.metadata()}, {"remove": removed(old)})
    table.append("new.parquet", {"id": [2, 3_000_000_000], "name": [None, "Bob"]})
    assert found(traces(tmp_path, [("id", "=", 2)])) == {
        "live": {"new.parquet"},
        "removed": {"old.parquet"},
    }
    assert found(traces(tmp_path, [("id", "=", 3_000_000_000)])) == {"live": {"new.parquet"}}
    by_null = {place.path: place.rows for place in traces(tmp_path, [("name", "=", None)]).places}
    assert by_null == {"new.parquet": 1, "old.parquet": 2}


def test_a_column_that_changed_its_type_is_read_as_it_was(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path, fields={"key": "long"})
    old = table.append("old.parquet", {"key": [1, 2]})
    table.fields = {"key": "string"}
    new = table.write_file("new.parquet", {"key": ["1", "x"]})
    table.commit({"metaData": table.metadata()}, {"remove": removed(old)}, {"add": new})
    assert found(traces(tmp_path, [("key", "=", "x")])) == {
        "live": {"new.parquet"},
        "unreadable": {"old.parquet"},
    }
    assert found(traces(tmp_path, [("key", "=", 2)])) == {
        "removed": {"old.parquet"},
        "unreadable": {"new.parquet"},
    }


def test_an_unknown_column_is_refused_with_what_there_is(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.commit({"metaData": table.metadata()})
    with pytest.raises(InvalidArgumentError, match=r"no column 'nam'.*older definition") as error:
        traces(tmp_path, [("nam", "=", "x")])
    assert "did you mean name" in (error.value.hint or "")
    for nothing in (None, True):
        with pytest.raises(InvalidArgumentError, match=r"(?s)needs a condition.*name = 'Anna'"):
            DeltaTable.for_path(None, tmp_path).traces(nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="needs a Spark session"):
        traces(tmp_path, "name = 'x'")


def test_what_is_not_parquet_could_hold_anything_unless_it_is_plain_text(tmp_path: Path) -> None:
    table = people(tmp_path)
    (tmp_path / "export.csv").write_text(f"1,{MARKER},north\n")
    (tmp_path / "harmless.csv").write_text("1,Bob,north\n")
    (tmp_path / "archive.gz").write_bytes(b"\x1f\x8b\x00\xff")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1\xff\xfePAR1")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / ".a.parquet.crc").write_bytes(b"crc\0\xff")
    (tmp_path / ".b.parquet.crc").write_bytes(b"crc\0\xff " + MARKER.encode())
    report = traces(tmp_path)
    assert found(report) == {
        "text": {"export.csv", ".b.parquet.crc"},
        "unreadable": {"archive.gz", "broken.parquet"},
    }
    assert report.other_files == 2
    assert "the value is in 2 files" in str(report)
    assert "2 files (14 B) that could hold anything" in str(report)
    # Where no value is named, nobody can tell what a text says.
    assert "harmless.csv" in found(traces(tmp_path, [("id", ">", 5)]))["unreadable"]
    assert table.version == 0


def test_files_of_another_table_are_named_as_such(tmp_path: Path) -> None:
    source = people(tmp_path / "source")
    there = source.file("a.parquet", 1, marked=True)
    clone = people(tmp_path / "clone")
    full = there | {"path": (tmp_path / "source/a.parquet").as_uri()}
    clone.add(full)
    report = traces(tmp_path / "clone")
    assert found(report)["outside"] == {str(tmp_path / "source/a.parquet")}
    assert report.places[0].rows == 1
    assert "the table that the file belongs to" in str(report)
    clone.commit({"remove": removed(full)})
    assert found(traces(tmp_path / "clone"))["outside"] == {str(tmp_path / "source/a.parquet")}
    # A table inside of the folder, which vacuum leaves alone.
    inner = people(tmp_path / "source/inner")
    inner.add(inner.file("b.parquet", 1, marked=True))
    assert "inner/b.parquet" in found(traces(tmp_path / "source"))["outside"]
    (tmp_path / "source/a.parquet").unlink()
    assert "outside" not in found(traces(tmp_path / "clone"))


def test_a_file_that_the_log_names_in_full_is_the_tables_own(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True)
    table.add(add | {"path": (tmp_path / "a.parquet").as_uri()})
    assert found(traces(tmp_path))["live"] == {"a.parquet"}


def test_versions_are_those_that_the_log_can_still_read(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True)
    table.add(add)
    table.commit()
    table.checkpoint([add])
    table.write_hint()
    table.commit({"remove": removed(add)})
    table.drop_commits(0, 1)
    [place] = [each for each in traces(tmp_path).places if each.kind == "removed"]
    assert place.versions == (2, 2)
    table.commit()
    table.checkpoint([])
    table.write_hint()
    table.drop_commits(2, 3)
    (table.log / f"{2:020}.checkpoint.parquet").unlink()
    [place] = [each for each in traces(tmp_path).places if each.path == "a.parquet"]
    assert (place.kind, place.versions) == ("orphan", None)


def test_a_vector_that_is_gone_is_said_and_the_rows_count_as_live(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True)
    table.add(add)
    [vector] = table.write_vectors([1])
    table.delete(add, vector)
    table.vector_path().unlink()
    [place] = [each for each in traces(tmp_path).places if each.kind == "live"]
    assert "vector cannot be read" in place.detail


def test_a_table_of_deltalake_is_searched(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["Zoe", MARKER, "Bob"]})
    write_deltalake(tmp_path / "t", rows)
    Peer(tmp_path / "t").delete(f"name = '{MARKER}'")
    report = traces(tmp_path / "t")
    assert set(found(report)) == {"removed", "log"}
    assert [place.rows for place in report.places if place.kind == "removed"] == [1]
    assert traces(tmp_path / "t", [("name", "=", "Tom")]).is_empty


def test_a_file_is_read_by_the_partitions_of_its_own_time(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, fields={"id": "long", "name": "string"})
    table.partition_columns = ["name"]
    table.create()
    add = table.append("name=Anna/a.parquet", {"id": [1, 2]}, {"name": "Anna"})
    table.write_file("name=Anna/orphan.parquet", {"id": [3]}, {"name": "Anna"})
    table.partition_columns = []
    table.commit({"metaData": table.metadata()}, {"remove": removed(add)})
    table.append("b.parquet", {"id": [4], "name": ["Bob"]})
    table.write_file("lost.parquet", {"id": [5], "name": ["Bob"]})
    report = found(traces(tmp_path, [("name", "=", "Anna")]))
    assert report["removed"] == {"name=Anna/a.parquet"}
    assert report["orphan"] == {"name=Anna/orphan.parquet"}
    assert report["log"] == {f"_delta_log/{n:020}.json" for n in (1, 2)}
    assert "unreadable" not in report


def test_columns_that_became_partitions_later_are_read_from_older_files(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path, fields={"id": "long", "name": "string"})
    add = table.append("a.parquet", {"id": [1], "name": ["Anna"]})
    table.partition_columns = ["name"]
    table.commit({"metaData": table.metadata()}, {"remove": removed(add)})
    assert found(traces(tmp_path, [("name", "=", "Anna")])) == {"removed": {"a.parquet"}}
    # A live file of the new kind changes nothing.
    table.append("c.parquet", {"id": [1]}, {"name": "Cyd"})
    assert found(traces(tmp_path, [("name", "=", "Anna")])) == {"removed": {"a.parquet"}}


def test_actions_have_the_partition_values_of_their_time_only(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path, fields={"id": "long", "name": "string"})
    add = table.append("a.parquet", {"id": [1], "name": ["Anna"]})
    table.partition_columns = ["name"]
    other = table.write_file("name=Bob/b.parquet", {"id": [1]}, {"name": "Bob"})
    table.commit({"metaData": table.metadata()}, {"remove": removed(add)}, {"add": other})
    snapshot = open_snapshot(Storage.open(str(tmp_path)))
    actions = read_history(snapshot).actions
    assert [dict(each) for each in actions["partitionValues"].to_pylist()] == [
        {},
        {"name": "Bob"},
        {},
    ]


@pytest.mark.parametrize("name", [f".{1:020}.checkpoint.parquet.4711.tmp", f"{1:020}.json.gz"])
def test_leftovers_in_the_log_that_are_no_text_could_hold_anything(
    tmp_path: Path, name: str
) -> None:
    table = people(tmp_path)
    (table.log / name).write_bytes(zlib.compress(MARKER.encode()))
    assert found(traces(tmp_path)) == {"unreadable": {f"_delta_log/{name}"}}


def test_leftovers_in_the_log_that_are_parquet_are_read_as_such(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=False) | {
        "path": "gone.parquet",
        "stats": statistics({"id": [1], "name": [MARKER]}),
    }
    left = table.log / f".{0:020}.checkpoint.parquet.4711.tmp"
    table.checkpoint([add])[0].rename(left)
    assert found(traces(tmp_path)) == {"log": {f"_delta_log/{left.name}"}}
    assert traces(tmp_path, [("name", "=", "Nobody")]).is_empty


def test_what_a_vacuum_leaves_alone_is_no_orphan(tmp_path: Path) -> None:
    table = people(tmp_path)
    outside = ("old/data/", "new\nline/data/")  # an Iceberg table and a Delta table inside
    hidden = ("_x=1/", "a/_tmp/")  # no partition column has that name
    for folder in (*outside, *hidden, "a/", "a/_change_data/"):
        table.file("part.parquet", 1, marked=True, folder=folder)
    (tmp_path / "old/metadata").mkdir()
    (tmp_path / "old/metadata/v1.metadata.json").write_text("{}")
    people(tmp_path / "new\nline")
    report = traces(tmp_path)
    assert found(report) == {
        "outside": {f"{folder}part.parquet" for folder in outside},
        "hidden": {f"{folder}part.parquet" for folder in hidden},
        "orphan": {"a/part.parquet", "a/_change_data/part.parquet"},
    }
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (0, 0))
    deleted = DeltaTable.for_path(None, tmp_path).vacuum(dry_run=True).files["path"].to_pylist()
    assert set(deleted) == found(report)["orphan"]


def test_a_file_removed_in_a_time_that_python_lacks_is_shown(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.file("a.parquet", 1, marked=True)
    table.add(add)
    table.commit({"remove": removed(add) | {"deletionTimestamp": 2**62}})
    report = traces(tmp_path)
    assert report.gone_at is not None
    assert "9999-12-31 23:59 UTC" in str(report)


def test_a_live_file_with_a_hidden_name_is_found_once(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.add(table.file("part.parquet", 1, marked=True, folder="_x/"))
    assert found(traces(tmp_path)) == {"live": {"_x/part.parquet"}}


def test_rows_in_the_folder_of_the_log_could_hold_anything(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.file("rows.parquet", 1, marked=True, folder="_delta_log/")
    assert found(traces(tmp_path)) == {"unreadable": {"_delta_log/rows.parquet"}}


def test_checkpoints_of_inner_tables_could_hold_anything(tmp_path: Path) -> None:
    people(tmp_path)
    inner = people(tmp_path / "inner")
    checkpoint = inner.checkpoint([])[0]
    assert found(traces(tmp_path)) == {"unreadable": {f"inner/_delta_log/{checkpoint.name}"}}


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("id", "=", 4711), "4711,Bob"),
        (("name", "=", "Al"), "1,Al"),
        (("price", "=", 1.5), "1,1.50"),
        (("price", "=", 1.5e20), "1,1.5E20"),
        (("price", "=", 1.5e20), "1,150000000000000000000.0"),
        (("price", "=", -0.001), "1,-1.0E-3"),
        (("price", "=", 0.0), "1,0.0"),
        (("cost", "=", Decimal(f"{LONG}.50")), f"{LONG}.5"),
        (("at", "=", "2024-01-31T12:00:00.123456+00:00"), "2024-01-31 13:00:00.123"),
        (("at", "=", "2024-01-31T12:00:00+00:00"), "2024-01-31T12:00Z"),
        (("day", "=", "2024-01-31"), "x;2024-01-31"),
    ],
)
def test_values_of_any_type_are_found_in_texts_without_a_header(
    tmp_path: Path, where: tuple[str, str, Any], line: str
) -> None:
    fields = {"id": "long", "name": "string", "price": "double", "cost": "decimal(38,2)"}
    TableBuilder.made(tmp_path, fields=fields | {"at": "timestamp", "day": "date"})
    (tmp_path / "harmless.csv").write_text("7,Zoe,2.5,2023-05-05,2023-05-05 05:05:05\n")
    (tmp_path / "export.csv").write_text(f"{line}\n")
    report = traces(tmp_path, [where])
    assert found(report) == {"text": {"export.csv"}}
    assert report.log_judged


@pytest.mark.parametrize("where", [("flag", "=", True), ("raw", "=", b"x"), ("name", "=", "")])
def test_values_that_no_text_tells_leave_texts_and_the_log_open(
    tmp_path: Path, where: tuple[str, str, Any]
) -> None:
    fields = {"flag": "boolean", "raw": "binary", "name": "string"}
    TableBuilder(tmp_path, fields=fields).create()
    (tmp_path / "export.csv").write_text("1\n")
    report = traces(tmp_path, [where])
    assert found(report) == {"unreadable": {"export.csv"}}
    assert not report.log_judged


@pytest.mark.parametrize("cut", ["Anna-Mar", "Anna-Mar\ufffd", "Anna-Mas", "Anna-Maria Siby"])
@pytest.mark.parametrize("length", ["8", "32"])
def test_statistics_may_cut_strings_earlier(tmp_path: Path, cut: str, length: str) -> None:
    table = people(tmp_path, properties={"delta.dataSkippingStringPrefixLength": length})
    entry = {"path": "gone.parquet", "partitionValues": {}, "size": 9, "modificationTime": 1}
    stats = json.dumps({"numRecords": 1, "maxValues": {"name": cut}})
    table.add(entry | {"dataChange": True, "stats": stats})
    table.properties = {}
    table.commit({"metaData": table.metadata()}, {"remove": {"path": "gone.parquet"}})
    where = [("name", "=", "Anna-Maria Sibylla of Frankfurt am Main")]
    assert set(found(traces(tmp_path, where))) == {"log"}
    for other in ("Anna-Sophie", "Anna-Mat", "Anna-M"):
        assert traces(tmp_path, [("name", "=", other)]).is_empty


def test_removes_without_partition_values_have_them_in_their_paths(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    table.commit({"remove": {"path": "region=far%252Foff/a.parquet", "deletionTimestamp": 1}})
    where = [("region", "=", "far/off")]
    assert found(traces(tmp_path, where)) == {"log": {f"_delta_log/{1:020}.json"}}
    assert traces(tmp_path, [("region", "=", "near")]).is_empty
    table.file("a.parquet", 1, marked=False, region="far%2Foff")
    assert found(traces(tmp_path, where))["removed"] == {"region=far%2Foff/a.parquet"}


def test_folders_behind_links_are_searched_where_the_log_names_files(tmp_path: Path) -> None:
    table = people(tmp_path / "t", partition_columns=["region"])
    add = table.file("a.parquet", 1, marked=True, region="north")
    table.add(add)
    table.file("orphan.parquet", 1, marked=True, region="north")
    table.commit({"remove": removed(add)})
    for name in ("region=north", "_delta_log"):
        (tmp_path / "t" / name).rename(tmp_path / name)
        (tmp_path / "t" / name).symlink_to(tmp_path / name)
    report = traces(tmp_path / "t")
    assert found(report)["removed"] == {"region=north/a.parquet"}
    assert found(report)["orphan"] == {"region=north/orphan.parquet"}
    assert report.log_files == 3
    assert any("links lead to folders" in note for note in report.notes)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("name", ['say "hi" there', "Zoë Quéval", "a\\b c", "O'Hara x"])
def test_predicates_are_json_inside_of_json(tmp_path: Path, name: str, times: int) -> None:
    table = people(tmp_path)
    text = f"name =\n{name}\n"
    for _ in range(times):
        text = json.dumps(text)
    table.commit({"commitInfo": {"operationParameters": {"predicate": text}}})
    if times < 3:
        assert set(found(traces(tmp_path, [("name", "=", name)]))) == {"log"}
    (tmp_path / "leftover.txt").write_text(json.dumps(f"first\n{name}\tlast"))
    assert "text" in found(traces(tmp_path, [("name", "=", name)]))


def test_a_dropped_column_counts_in_other_spellings(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, protocol=MAPPING)
    both = mapped(("id", "col-1", "long"), ("name", "col-2", "string"))
    table.commit({"protocol": MAPPING}, {"metaData": both})
    table.append("old.parquet", {"col-1": [1], "COL-2": [MARKER]})
    table.commit({"metaData": mapped(("id", "col-1", "long"), ("name", "col-9", "string"))})
    assert found(traces(tmp_path))["dropped"] == {"old.parquet"}


def test_a_dropped_column_that_no_version_defines_any_more_could_hold_anything(
    tmp_path: Path,
) -> None:
    table = TableBuilder(tmp_path, protocol=MAPPING)
    newest = mapped(("id", "col-1", "long"), ("name", "col-9", "string"))
    table.commit({"protocol": MAPPING}, {"metaData": newest})
    add = table.write_file("old.parquet", {"col-1": [1], "col-2": [MARKER]})
    stats = {"numRecords": 1, "minValues": {"col-2": MARKER}}
    table.add(add | {"stats": json.dumps(stats)})
    report = traces(tmp_path)
    assert found(report) == {"unreadable": {"old.parquet"}, "log": {f"_delta_log/{1:020}.json"}}
    assert "col-2: it was dropped" in str(report)


def test_a_name_of_a_dropped_column_may_be_one_of_another_type(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, protocol=MAPPING)
    table.commit({"protocol": MAPPING}, {"metaData": mapped(("name", "col-1", "string"))})
    table.append("old.parquet", {"col-1": [MARKER]})
    table.commit({"metaData": mapped(("name", "col-9", "long"))})
    table.append("new.parquet", {"col-9": [7]})
    assert found(traces(tmp_path)) == {"dropped": {"old.parquet"}}
    assert found(traces(tmp_path, [("name", "=", 7)])) == {"live": {"new.parquet"}}
