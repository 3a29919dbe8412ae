"""Where matching rows and their values still are: in files of every kind, and in the log."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
import zlib
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
from tests.delta import builder
from tests.delta.vacuum.aging import age

Action = dict[str, Any]

MARKER = "MARKER0815"
WHERE = [("name", "=", MARKER)]
# So that the bytes of a file tell whether a string is in it.
PLAIN: dict[str, Any] = {"use_dictionary": False, "compression": "NONE"}
# More digits than arithmetic keeps.
LONG = "12345678901234567890123456789012"
TYPES = {"id": pa.int64()}
FIELDS = {"id": "long", "name": "string", "region": "string"}


def now_ms() -> int:
    return int(time.time() * 1000)


def commits(*versions: int) -> set[str]:
    return {f"_delta_log/{version:020}.json" for version in versions}


def statistics(**columns: Any) -> str:  # noqa: ANN401
    """The statistics that an engine writes."""
    known = {name: [each for each in values if each] for name, values in columns.items()}
    found: Action = {"numRecords": len(next(iter(columns.values())))}
    for bound, choose in (("minValues", min), ("maxValues", max)):
        found[bound] = {name: choose(values) for name, values in known.items() if values}
    nulls = {name: len(columns[name]) - len(values) for name, values in known.items()}
    return json.dumps(found | {"nullCount": nulls})


def leave_in_log(table: builder.TableBuilder, **stats: Any) -> None:  # noqa: ANN401
    """Add a file and remove it, so that the log alone tells of its values."""
    entry = {"path": "gone.parquet", "partitionValues": {}, "size": 9, "modificationTime": 1}
    table.add(entry | {"dataChange": True, "stats": json.dumps({"numRecords": 1, **stats})})
    table.commit({"remove": {"path": "gone.parquet", "dataChange": True}})


class People(builder.TableBuilder):
    """A table of people, with a marked one among the three of a file."""

    # With a name after the marker instead, the marker is a bound of the statistics.
    third = "Bob"

    def file(
        self, name: str, *, marked: bool = True, region: str | None = None, folder: str = ""
    ) -> Action:
        """Write a file; give its add."""
        names = ["Zoe", MARKER if marked else "Tom", self.third]
        return self._rows(folder, name, [1, 2, 3], names, region)

    def put(self, name: str, *, more: Action | None = None, **options: Any) -> Action:  # noqa: ANN401
        """Write a file and commit it."""
        add = self.file(name, **options) | (more or {})
        self.add(add)
        return add

    def purge(self, add: Action, name: str) -> None:
        """Rewrite a file as PURGE does: without the marked row."""
        region = add["partitionValues"].get("region")
        new = self._rows("", name, [1, 3], ["Zoe", self.third], region) | {"dataChange": False}
        gone = builder.removed(add) | {"deletionTimestamp": now_ms(), "dataChange": False}
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
        rows = pa.table({n: pa.array(v, TYPES.get(n, pa.string())) for n, v in columns.items()})
        add = self.write_file(folder + name, rows, values, **PLAIN)
        return add | {"stats": statistics(**columns)}


def traces(root: Path, where: Any = None) -> TracesReport:  # noqa: ANN401
    return DeltaTable.for_path(None, root).traces(WHERE if where is None else where)


def found(report: TracesReport) -> dict[str, set[str]]:
    """The paths by kind."""
    kinds = {place.kind for place in report.places}
    return {kind: {p.path for p in report.places if p.kind == kind} for kind in kinds}


def holding(root: Path, text: str = MARKER) -> set[str]:
    """The files below a folder that have some bytes."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    }


def people(root: Path, **options: Any) -> People:  # noqa: ANN401
    return People.made(root, fields=FIELDS, **options)


def test_no_row_is_no_trace_if_the_condition_names_values(tmp_path: Path) -> None:
    people(tmp_path).put("a.parquet", marked=False)
    report = traces(tmp_path)
    assert (bool(report), report.is_empty, report.gone_at) == (False, True, None)
    assert "nothing is left" in str(report)
    assert json.loads(json.dumps(report.to_json()))["is_empty"] is True
    assert (report.files, report.log_files) == (1, 2)
    # Without values the log is left open, and nothing is proved.
    report = traces(tmp_path, [("id", ">", 100)])
    facts = (bool(report), report.is_empty, report.places, report.log_judged, report.log_files)
    assert facts == (True, False, (), False, 0)
    headline, _, rest = str(report).partition("\n")
    assert headline.endswith("version 1: no row was found, the log was not judged")
    assert "not searched  the log" in rest
    assert report.to_json()["is_empty"] is False


def test_each_place_has_its_kind_its_rows_its_versions_and_its_steps(tmp_path: Path) -> None:
    table = people(tmp_path)
    live, half, gone = (table.file(f"{n}.parquet") for n in (1, 10, 20))
    table.add(live, half, gone)
    table.delete_rows(half, [1])
    moment = now_ms()
    table.commit({"remove": builder.removed(gone) | {"deletionTimestamp": moment}})
    for folder, name in (("", "orphan"), ("_temporary/0/", "part"), ("_change_data/", "cdc")):
        table.file(f"{name}.parquet", folder=folder)
    table.commit({"cdc": {"path": "_change_data/cdc.parquet", "partitionValues": {}, "size": 9}})
    report = traces(tmp_path)
    places = {place.kind: place for place in report.places}
    actions = {kind: [str(s.action) for s in place.steps] for kind, place in places.items()}
    assert "by hand" in actions["hidden"][0]
    assert {
        kind: (place.path, place.rows, place.versions, actions[kind])
        for kind, place in places.items()
    } == {
        "live": ("1.parquet", 1, (1, 4), ["delete()", "purge()", "vacuum()"]),
        "deleted": ("10.parquet", 1, (1, 1), ["purge()", "vacuum()"]),
        "removed": ("20.parquet", 1, (1, 2), ["vacuum()"]),
        "orphan": ("orphan.parquet", 1, None, ["vacuum()"]),
        "hidden": ("_temporary/0/part.parquet", 1, None, actions["hidden"]),
        "change": ("_change_data/cdc.parquet", 1, (4, 4), ["vacuum()"]),
    }
    assert len(report.places) == 6
    due = places["removed"].steps[0].not_before
    assert due is not None
    removal = datetime.fromtimestamp(moment / 1000, timezone.utc)
    assert abs(due - removal - timedelta(days=7)) < timedelta(minutes=5)
    assert "run purge(), then vacuum() after 20" in str(report)
    assert "reached by time travel to version 1" in str(report)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("change_feed", [False, True])
@pytest.mark.parametrize("third", ["Bob", "Uwe"])
def test_every_step_of_an_erasure_agrees_with_the_bytes_on_disk(
    tmp_path: Path, third: str, *, partitioned: bool, change_feed: bool
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    properties["delta.logRetentionDuration"] = "interval 1 days"
    columns = ["region"] if partitioned else []
    table = people(tmp_path, partition_columns=columns, properties=properties)
    table.third = third
    add = table.file("a.parquet", region="north")
    table.add(add, table.file("b.parquet", marked=False, region="south"))

    def agrees() -> set[str]:
        report = traces(tmp_path)
        paths = {place.path for place in report.places}
        assert (paths, report.is_empty) == (holding(tmp_path), not paths)
        return {place.kind for place in report.places}

    assert agrees() == {"live"} | ({"log"} if third == "Uwe" else set())
    [vector] = table.write_vectors([1])
    stats = json.loads(add["stats"]) | {"tightBounds": False}
    new = add | {"stats": json.dumps(stats), "deletionVector": vector}
    predicate = {"operationParameters": {"predicate": f"[\"(name = '{MARKER}')\"]"}}
    actions: list[Action] = [
        {"commitInfo": {"operation": "DELETE", **predicate}},
        {"remove": builder.removed(add) | {"deletionTimestamp": now_ms()}},
        {"add": new},
    ]
    change = set()
    if change_feed:
        change = {"change"}
        changed = table.file("c.parquet", region="north", folder="_change_data/")
        actions.append({"cdc": {n: changed[n] for n in ("path", "partitionValues", "size")}})
    table.commit(*actions)
    assert agrees() == {"deleted", "log"} | change

    table.purge(new, "c.parquet")
    assert agrees() == {"removed", "log"} | change

    table.handle.vacuum()
    assert "removed" in agrees()  # the retention is not over
    table.handle.vacuum(retention_hours=0, force=True)
    assert agrees() == {"log"}

    table.handle.checkpoint()
    table.handle.clean_log()
    assert agrees() == {"log"}  # the log's retention is not over
    age(tmp_path / "_delta_log", days=3)
    report = traces(tmp_path)
    assert all(step.not_before is None for place in report.places for step in place.steps)
    table.handle.clean_log()
    assert agrees() == set()


def test_statistics_of_live_rows_or_wrong_ones_hide_no_rows(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.put("a.parquet")
    [vector] = table.write_vectors([1])
    tight = json.loads(statistics(id=[1, 3], name=["Zoe", "Bob"]))
    stats = json.dumps(tight | {"numRecords": 3, "tightBounds": True})
    marked = add | {"stats": stats, "deletionVector": vector}
    table.commit({"remove": builder.removed(add)}, {"add": marked})
    table.put("b.parquet", more={"stats": statistics(id=[1, 2, 3], name=["Ann", "Bea", "Cyd"])})
    assert found(traces(tmp_path)) == {"deleted": {"a.parquet"}, "live": {"b.parquet"}}


def test_the_condition_of_other_columns_counts_for_rows_and_for_the_log(tmp_path: Path) -> None:
    live = {"minValues": {"name": MARKER}, "maxValues": {"name": MARKER}, "numRecords": 3}
    people(tmp_path).put("a.parquet", more={"stats": json.dumps(live)})
    # The value is in the log, but of a row that does not match.
    assert traces(tmp_path, [*WHERE, ("id", ">", 100)]).is_empty
    assert set(found(traces(tmp_path, [*WHERE, ("id", "<", 100)]))) == {"live", "log"}


@pytest.mark.parametrize(
    ("column", "value", "other"),
    [
        ("id", 2, 3),
        ("day", "2024-01-31", "2024-02-01"),
        ("price", 1.5, 2.5),
        ("at", "2024-01-31T12:00:00.123456+00:00", "2024-01-31T13:00:00+00:00"),
    ],
)
def test_all_types_are_searched(tmp_path: Path, column: str, value: object, other: object) -> None:
    fields = {"id": "long", "day": "date", "price": "double", "at": "timestamp"}
    bounds = {"id": 2, "day": "2024-01-31", "price": 1.5, "at": "2024-01-31T12:00:00.123Z"}
    leave_in_log(
        builder.TableBuilder.made(tmp_path, fields=fields), minValues=bounds, maxValues=bounds
    )
    for where in ((column, "=", value), (column, "in", [value, other])):
        assert found(traces(tmp_path, [where])) == {"log": commits(1)}
    assert traces(tmp_path, [(column, "=", other)]).is_empty


def test_a_string_that_statistics_cut_is_found_by_its_beginning(tmp_path: Path) -> None:
    long = "x" * 20 + MARKER + "y" * 20
    low, high = {"name": long[:32]}, {"name": long[:32] + "\ufffd"}
    leave_in_log(people(tmp_path), minValues=low, maxValues=high)
    assert set(found(traces(tmp_path, [("name", "=", long)]))) == {"log"}
    assert traces(tmp_path, [("name", "=", "x" * 60)]).is_empty


def test_checkpoints_sidecars_and_checksum_files_are_searched(tmp_path: Path) -> None:
    table = people(tmp_path)
    stats = statistics(id=[1, 2, 3], name=[MARKER, MARKER, "Zoe"])
    add = table.put("a.parquet", more={"stats": stats})
    checkpoint = table.checkpoint([add])[0]
    crc = table.log / f"{1:020}.crc"
    crc.write_text(json.dumps({"numFiles": 1, "allFiles": [add]}))
    (table.log / "_last_checkpoint").write_text('{"version":1,"size":3}')
    sidecar = table.checkpoint_with_sidecars([add], as_json=True)[1]
    named = {str(path.relative_to(tmp_path)) for path in (checkpoint, crc, sidecar)}
    assert named | commits(1) <= found(traces(tmp_path))["log"]


@pytest.mark.parametrize("as_json", ["true", "false"])
def test_statistics_in_the_columns_of_a_checkpoint_count(tmp_path: Path, as_json: str) -> None:
    table = people(tmp_path, properties={"delta.checkpoint.writeStatsAsJson": as_json})
    table.third = "Uwe"  # so that the marked one is a bound
    table.put("a.parquet")
    table.handle.checkpoint()
    checkpoint = f"_delta_log/{1:020}.checkpoint.parquet"
    types = pq.read_schema(tmp_path / checkpoint).field("add").type
    assert (types.get_field_index("stats") >= 0) == (as_json == "true")
    assert checkpoint in found(traces(tmp_path))["log"]
    # Of other columns too, once the file is gone.
    (tmp_path / "a.parquet").unlink()
    assert found(traces(tmp_path, [("region", "=", MARKER)]))["log"] >= {checkpoint}


def test_a_longer_word_is_another_value(tmp_path: Path) -> None:
    table = people(tmp_path)
    for name in (MARKER, f"{MARKER}2", MARKER):
        table.commit({"commitInfo": {"operationParameters": {"predicate": f"name='{name}'"}}})
    assert found(traces(tmp_path)) == {"log": commits(1, 3)}


OF = f"request of {MARKER}"


def described(**field: Any) -> Action:  # noqa: ANN401
    """The metadata of a table whose column has something to tell."""
    schema = json.dumps(builder.struct_of(builder.field_of("name", "string", **field)))
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
def test_all_strings_of_logs_count(tmp_path: Path, action: Action, what: str, where: str) -> None:
    table = people(tmp_path)
    if where == "commit":
        path = table.commit(action, {"metaData": table.metadata()})
    elif where == "compacted":
        path, written = table.log / f"{0:020}.{1:020}.compacted.json", action
    elif where == "checksum":
        names = {"metaData": "metadata", "txn": "setTransactions"}
        [(kind, body)] = action.items()
        listed = [body] if kind in ("txn", "domainMetadata") else body
        path, written, what = table.log / f"{0:020}.crc", {names.get(kind, kind): listed}, ""
    else:
        path = table.log / "_last_checkpoint"
        written = {"version": 0, "v2Checkpoint": {"nonFileActions": [action]}}
    if where != "commit":
        path.write_text(json.dumps(written))
    [place] = traces(tmp_path).places
    assert (place.kind, place.path) == ("log", f"_delta_log/{path.name}")
    assert what in place.detail


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
def test_numbers_are_values(tmp_path: Path, value: int, info: Action, *, is_found: bool) -> None:
    people(tmp_path).commit({"commitInfo": info})
    assert bool(traces(tmp_path, [("id", "=", value)])) == is_found


def test_comments_in_the_footers_of_data_files_count(tmp_path: Path) -> None:
    table = people(tmp_path)
    key = "org.apache.spark.sql.parquet.row.metadata"
    for name, comment in (("a", OF), ("b", "plain")):
        table.put(f"{name}.parquet", marked=False)
        rows = pq.read_table(tmp_path / f"{name}.parquet")
        said = {key: described(comment=comment)["schemaString"]}
        table.append(f"{name}.parquet", rows.replace_schema_metadata(said))
    report = traces(tmp_path)
    assert found(report) == {"footer": {"a.parquet"}}
    assert "rewrite its files by optimize(zorder_by), then vacuum()" in str(report)


@pytest.mark.parametrize("as_json", [True, False])
def test_every_string_of_a_checkpoint_counts(tmp_path: Path, *, as_json: bool) -> None:
    table = people(tmp_path, properties={"note": OF})
    # What the newest version says has to be changed first.
    [place] = traces(tmp_path).places
    first = "give the table other comments, defaults and properties"
    assert [step.action for step in place.steps] == [first, "checkpoint()", "clean_log()"]
    assert place.path in commits(0)
    add = table.file("a.parquet", marked=False) | {"tags": {"why": OF}}
    files = table.checkpoint_with_sidecars([add], as_json=as_json)
    manifest, tagged, other = (str(path.relative_to(tmp_path)) for path in files)
    places = {place.path for place in traces(tmp_path).places}
    assert {manifest, tagged} <= places
    assert other not in places


def test_a_report_is_a_record_and_holds_digests_if_asked(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    table.put("a.parquet", marked=False, region=MARKER)
    report = table.handle.traces([("region", "in", [MARKER])], redact=True)
    record, number = report.to_json(), table.metadata()["id"]
    assert MARKER not in json.dumps(record) + str(report)
    digest = hashlib.sha256(f"{number}:{MARKER}".encode()).hexdigest()[:32]
    assert record["condition"] == f"[('region', 'in', ['sha256:{digest}'])]"
    assert record["places"][0]["path"] == f"region=sha256:{digest}/a.parquet"
    assert (record["delvec"], record["table_id"]) == (delvec.__version__, number)
    assert (record["version"], record["host"]) == (1, socket.gethostname())
    assert datetime.fromisoformat(record["time"]).tzinfo is not None
    assert MARKER in table.handle.traces([("region", "=", MARKER)]).to_json()["condition"]


def test_partition_values_count_in_rows_the_log_and_names(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    path = "region=far%252Foff/a.parquet"
    own = {"partitionValues": {"region": "far/off"}, "path": path}
    add = table.put("a.parquet", marked=False, region="far%2Foff", more=own)
    table.commit({"remove": builder.removed(add)})
    table.file("b.parquet", marked=False, region="far%2Foff")
    (tmp_path / "region=far%2Foff/_SUCCESS").touch()
    # A remove without partition values has them in its path.
    table.commit({"remove": {"path": path, "deletionTimestamp": 1}})
    assert found(traces(tmp_path, [("region", "=", "far/off")])) == {
        "removed": {"region=far%2Foff/a.parquet"},
        "orphan": {"region=far%2Foff/b.parquet"},
        "name": {"region=far%2Foff/_SUCCESS"},
        "log": commits(1, 2, 3),
    }
    assert traces(tmp_path, [("region", "=", "near")]).is_empty


def test_a_file_is_known_by_a_remove_without_partition_values(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    table.commit({"remove": {"path": "region=far%252Foff/a.parquet", "deletionTimestamp": 1}})
    table.file("a.parquet", marked=False, region="far%2Foff")
    named = found(traces(tmp_path, [("region", "=", "far/off")]))
    assert named == {"removed": {"region=far%2Foff/a.parquet"}, "log": commits(1)}


def test_tombstones_keep_a_partition_value_in_checkpoints_until_they_expire(tmp_path: Path) -> None:
    table = people(tmp_path, partition_columns=["region"])
    add = table.put("a.parquet", marked=False, region="north")
    moment = now_ms()
    table.commit({"remove": builder.removed(add) | {"deletionTimestamp": moment}})
    table.handle.vacuum(retention_hours=0, force=True)
    report = traces(tmp_path, [("region", "=", "north")])
    assert set(found(report)) == {"log"}
    week = datetime.fromtimestamp(moment / 1000, timezone.utc) + timedelta(days=7)
    for place in report.places:
        first, last = place.steps
        assert (first.action, first.not_before, last.action) == (
            "checkpoint()",
            week,
            "clean_log()",
        )
        assert last.not_before is not None
        assert timedelta(days=30) <= last.not_before - week <= timedelta(days=31)


def test_an_orphan_whose_partition_nobody_knows_could_hold_anything(tmp_path: Path) -> None:
    people(tmp_path, partition_columns=["region"])
    pq.write_table(pa.table({"id": [1], "name": ["Zoe"]}), tmp_path / "lost.parquet")
    report = traces(tmp_path, [("region", "=", "north")])
    assert found(report) == {"unreadable": {"lost.parquet"}}
    assert "region is not known" in report.places[0].detail
    assert traces(tmp_path, [("name", "=", "Tom")]).is_empty


def define(table: builder.TableBuilder, *columns: tuple[str, str, str]) -> None:
    """Give a table with column mapping columns of names, physical names and types."""
    table.fields = [
        builder.mapped_field(name, kind, number, physical)
        for number, (name, physical, kind) in enumerate(columns, 1)
    ]
    table.redefine()


def with_mapping(root: Path, *columns: tuple[str, str, str]) -> builder.TableBuilder:
    properties = {**builder.MAPPED, "delta.columnMapping.maxColumnId": "9"}
    protocol = builder.protocol_of("deletionVectors", "columnMapping")
    properties["delta.enableDeletionVectors"] = "true"
    table = builder.TableBuilder(root, protocol=protocol, properties=properties)
    define(table, *columns)
    return table


ID, NAME = ("id", "col-1", "long"), ("name", "col-2", "string")
# Another column of the same name.
LATER = ("name", "col-9", "string")


def test_a_renamed_column_is_found_under_its_new_name(tmp_path: Path) -> None:
    table = with_mapping(tmp_path, ("old", "col-1", "string"))
    stats = json.dumps({"numRecords": 2, "minValues": {"col-1": MARKER}})
    table.add(table.write_file("a.parquet", {"col-1": [MARKER, "Bob"]}) | {"stats": stats})
    # A short value counts in a predicate with an earlier name of the column.
    table.commit({"commitInfo": {"operationParameters": {"predicate": "(Old = 7)"}}})
    define(table, ("name", "col-1", "string"))
    assert set(found(traces(tmp_path))) == {"live", "log"}
    assert found(traces(tmp_path, [("name", "=", "7")])) == {"log": commits(2)}
    # The old name means the same column, of older versions.
    report = traces(tmp_path, [("old", "=", MARKER)])
    assert set(found(report)) == {"live", "log"}
    assert "columns of version 2" in report.notes[0]


@pytest.mark.parametrize("spelling", ["col-2", "COL-2"])
def test_a_dropped_column_is_searched_in_live_files_too(tmp_path: Path, spelling: str) -> None:
    table = with_mapping(tmp_path, ID, NAME)
    table.append("old.parquet", {"col-1": [1], spelling: [MARKER]})
    define(table, ID)
    table.append("new.parquet", {"col-1": [2]})
    report = traces(tmp_path)
    assert found(report)["dropped"] == {"old.parquet"}
    assert [step.action for step in report.places[0].steps] == ["purge()", "vacuum()"]
    # A new column of the same name is another one; both are searched.
    define(table, ID, LATER)
    table.append("newer.parquet", {"col-1": [3], "col-9": [MARKER]})
    both_found = found(traces(tmp_path))
    assert (both_found["dropped"], both_found["live"]) == ({"old.parquet"}, {"newer.parquet"})
    # Rows that lack the column are null; those that have the old one are not matched by that.
    nulls = traces(tmp_path, [("name", "=", None)])
    assert found(nulls)["live"] == {"old.parquet", "new.parquet"}


def test_files_from_before_a_column_was_added_or_widened_are_read(tmp_path: Path) -> None:
    table = builder.TableBuilder.made(tmp_path, fields={"id": "integer"})
    old = table.append("old.parquet", {"id": pa.array([1, 2], pa.int32())})
    table.fields = {"id": "long", "name": "string"}
    table.redefine({"remove": builder.removed(old)})
    table.append("new.parquet", {"id": [2, 3_000_000_000], "name": [None, "Bob"]})
    both = {"live": {"new.parquet"}, "removed": {"old.parquet"}}
    assert found(traces(tmp_path, [("id", "=", 2)])) == both
    assert found(traces(tmp_path, [("id", "=", 3_000_000_000)])) == {"live": {"new.parquet"}}
    by_null = {place.path: place.rows for place in traces(tmp_path, [("name", "=", None)]).places}
    assert by_null == {"new.parquet": 1, "old.parquet": 2}


def test_a_column_that_changed_its_type_is_read_as_it_was(tmp_path: Path) -> None:
    table = builder.TableBuilder.made(tmp_path, fields={"key": "long"})
    old = table.append("old.parquet", {"key": [1, 2]})
    table.fields = {"key": "string"}
    new = table.write_file("new.parquet", {"key": ["1", "x"]})
    table.redefine({"remove": builder.removed(old)}, {"add": new})
    texts = {"live": {"new.parquet"}, "unreadable": {"old.parquet"}}
    numbers = {"removed": {"old.parquet"}, "unreadable": {"new.parquet"}}
    assert found(traces(tmp_path, [("key", "=", "x")])) == texts
    assert found(traces(tmp_path, [("key", "=", 2)])) == numbers


def test_an_unknown_column_is_refused_with_what_there_is(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.redefine()
    with pytest.raises(InvalidArgumentError, match=r"no column 'nam'.*older definition") as error:
        traces(tmp_path, [("nam", "=", "x")])
    assert "did you mean name" in (error.value.hint or "")
    for nothing in (None, True):
        with pytest.raises(InvalidArgumentError, match=r"(?s)needs a condition.*name = 'Anna'"):
            table.handle.traces(nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="needs a Spark session"):
        traces(tmp_path, "name = 'x'")


def test_what_is_not_parquet_could_hold_anything_unless_it_is_plain_text(tmp_path: Path) -> None:
    people(tmp_path)
    contents = {
        "export.csv": f"1,{MARKER},north\n".encode(),
        "harmless.csv": b"1,Bob,north\n",
        "archive.gz": b"\x1f\x8b\x00\xff",
        "broken.parquet": b"PAR1\xff\xfePAR1",
        "empty.parquet": b"",
        ".a.parquet.crc": b"crc\0\xff",
        ".b.parquet.crc": b"crc\0\xff " + MARKER.encode(),
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
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


def test_files_of_another_table_are_named_as_such(tmp_path: Path) -> None:
    source, clone = people(tmp_path / "source"), people(tmp_path / "clone")
    there = source.file("a.parquet")
    path = tmp_path / "source/a.parquet"
    full = there | {"path": path.as_uri()}
    clone.add(full)
    report = traces(clone.root)
    assert (found(report)["outside"], report.places[0].rows) == ({str(path)}, 1)
    assert "the table that the file belongs to" in str(report)
    clone.commit({"remove": builder.removed(full)})
    assert found(traces(clone.root))["outside"] == {str(path)}
    # A table inside of the folder, which vacuum leaves alone.
    people(source.root / "inner").put("b.parquet")
    assert "inner/b.parquet" in found(traces(source.root))["outside"]
    path.unlink()
    assert "outside" not in found(traces(clone.root))


def test_a_live_file_with_a_full_or_a_hidden_name_is_found_once(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.put("a.parquet", more={"path": (tmp_path / "a.parquet").as_uri()})
    table.put("part.parquet", folder="_x/")
    report = traces(tmp_path)
    assert (found(report), len(report.places)) == ({"live": {"a.parquet", "_x/part.parquet"}}, 2)


def test_versions_are_those_that_the_log_can_still_read(tmp_path: Path) -> None:
    table = people(tmp_path)
    add = table.put("a.parquet")
    table.commit()
    table.checkpoint([add])
    table.write_hint()
    table.commit({"remove": builder.removed(add)})
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


def test_a_table_of_deltalake_is_searched(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2, 3], "name": ["Zoe", MARKER, "Bob"]}))
    Peer(tmp_path / "t").delete(f"name = '{MARKER}'")
    report = traces(tmp_path / "t")
    assert set(found(report)) == {"removed", "log"}
    assert [place.rows for place in report.places if place.kind == "removed"] == [1]
    assert traces(tmp_path / "t", [("name", "=", "Tom")]).is_empty


def named(root: Path, *partitions: str) -> builder.TableBuilder:
    fields = {"id": "long", "name": "string"}
    return builder.TableBuilder.made(root, fields=fields, partition_columns=partitions)


ANNA = [("name", "=", "Anna")]


def test_a_file_is_read_by_the_partitions_of_its_own_time(tmp_path: Path) -> None:
    table = named(tmp_path, "name")
    add = table.append("name=Anna/a.parquet", {"id": [1, 2]}, {"name": "Anna"})
    table.write_file("name=Anna/orphan.parquet", {"id": [3]}, {"name": "Anna"})
    table.partition_columns = []
    table.redefine({"remove": builder.removed(add)})
    table.append("b.parquet", {"id": [4], "name": ["Bob"]})
    table.write_file("lost.parquet", {"id": [5], "name": ["Bob"]})
    assert found(traces(tmp_path, ANNA)) == {
        "removed": {"name=Anna/a.parquet"},
        "orphan": {"name=Anna/orphan.parquet"},
        "log": commits(1, 2),
    }


def test_columns_that_became_partitions_later_are_read_from_older_files(tmp_path: Path) -> None:
    table = named(tmp_path)
    add = table.append("a.parquet", {"id": [1], "name": ["Anna"]})
    table.partition_columns = ["name"]
    table.redefine({"remove": builder.removed(add)})
    assert found(traces(tmp_path, ANNA)) == {"removed": {"a.parquet"}}
    # A live file of the new kind changes nothing.
    table.append("c.parquet", {"id": [1]}, {"name": "Cyd"})
    assert found(traces(tmp_path, ANNA)) == {"removed": {"a.parquet"}}
    actions = read_history(open_snapshot(Storage.open(str(tmp_path)))).actions
    values = [dict(each) for each in actions["partitionValues"].to_pylist()]
    assert values == [{}, {"name": "Cyd"}, {}]


def test_what_no_reader_of_the_log_knows_could_hold_anything(tmp_path: Path) -> None:
    table, inner = people(tmp_path), people(tmp_path / "inner")
    names = [f".{1:020}.checkpoint.parquet.4711.tmp", f"{1:020}.json.gz"]
    for name in names:
        (table.log / name).write_bytes(zlib.compress(MARKER.encode()))
    table.file("rows.parquet", folder="_delta_log/")
    [checkpoint] = inner.checkpoint([])
    unknown = {f"_delta_log/{name}" for name in (*names, "rows.parquet")}
    unknown.add(str(checkpoint.relative_to(tmp_path)))
    assert found(traces(tmp_path)) == {"unreadable": unknown}


def test_leftovers_in_the_log_that_are_parquet_are_read_as_such(tmp_path: Path) -> None:
    table = people(tmp_path)
    stats = statistics(id=[1], name=[MARKER])
    add = table.file("a.parquet", marked=False) | {"path": "gone.parquet", "stats": stats}
    left = table.log / f".{0:020}.checkpoint.parquet.4711.tmp"
    table.checkpoint([add])[0].rename(left)
    assert found(traces(tmp_path)) == {"log": {f"_delta_log/{left.name}"}}
    assert traces(tmp_path, [("name", "=", "Nobody")]).is_empty


def test_what_a_vacuum_leaves_alone_is_no_orphan(tmp_path: Path) -> None:
    table = people(tmp_path)
    folders = {
        "outside": ("old/data/", "new\nline/data/"),  # an Iceberg table and a Delta table inside
        "hidden": ("_x=1/", "a/_tmp/"),  # no partition column has that name
        "orphan": ("a/", "a/_change_data/"),
    }
    for folder in (each for some in folders.values() for each in some):
        table.file("part.parquet", folder=folder)
    (tmp_path / "old/metadata").mkdir()
    (tmp_path / "old/metadata/v1.metadata.json").write_text("{}")
    people(tmp_path / "new\nline")
    there = {kind: {f"{each}part.parquet" for each in some} for kind, some in folders.items()}
    assert found(traces(tmp_path)) == there
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert set(table.handle.vacuum(dry_run=True).files["path"].to_pylist()) == there["orphan"]


def test_a_vector_that_is_gone_and_a_time_that_python_lacks_are_shown(tmp_path: Path) -> None:
    table = people(tmp_path)
    table.delete_rows(table.put("a.parquet"), [1])
    table.vector_path().unlink()
    gone = builder.removed(table.put("b.parquet")) | {"deletionTimestamp": 2**62}
    table.commit({"remove": gone})
    report = traces(tmp_path)
    [place] = [each for each in report.places if each.kind == "live"]
    assert (place.path, "vector cannot be read" in place.detail) == ("a.parquet", True)
    assert report.gone_at is not None
    assert "9999-12-31 23:59 UTC" in str(report)


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
        # Values that no text tells leave texts and the log open.
        *((where, None) for where in (("flag", "=", True), ("raw", "=", b"x"), ("name", "=", ""))),
    ],
)
def test_values_of_any_type_are_found_in_texts_without_a_header(
    tmp_path: Path, where: tuple[str, str, Any], line: str | None
) -> None:
    fields = {"id": "long", "name": "string", "price": "double", "cost": "decimal(38,2)"}
    fields |= {"at": "timestamp", "day": "date", "flag": "boolean", "raw": "binary"}
    builder.TableBuilder.made(tmp_path, fields=fields)
    (tmp_path / "other.csv").write_text("7,Zoe,2.5,2023-05-05,2023-05-05 05:05:05\n")
    (tmp_path / "export.csv").write_text(f"{line}\n")
    report = traces(tmp_path, [where])
    open_ones = {"unreadable": {"other.csv", "export.csv"}}
    assert found(report) == ({"text": {"export.csv"}} if line else open_ones)
    assert report.log_judged == bool(line)


@pytest.mark.parametrize("cut", ["Anna-Mar", "Anna-Mar\ufffd", "Anna-Mas", "Anna-Maria Siby"])
@pytest.mark.parametrize("length", ["8", "32"])
def test_statistics_may_cut_strings_earlier(tmp_path: Path, cut: str, length: str) -> None:
    table = people(tmp_path, properties={"delta.dataSkippingStringPrefixLength": length})
    leave_in_log(table, maxValues={"name": cut})
    table.properties = {}
    table.redefine()
    where = [("name", "=", "Anna-Maria Sibylla of Frankfurt am Main")]
    assert set(found(traces(tmp_path, where))) == {"log"}
    for other in ("Anna-Sophie", "Anna-Mat", "Anna-M"):
        assert traces(tmp_path, [("name", "=", other)]).is_empty


def test_folders_behind_links_are_searched_where_the_log_names_files(tmp_path: Path) -> None:
    table = people(tmp_path / "t", partition_columns=["region"])
    add = table.put("a.parquet", region="north")
    table.file("orphan.parquet", region="north")
    table.commit({"remove": builder.removed(add)})
    for name in ("region=north", "_delta_log"):
        (table.root / name).rename(tmp_path / name)
        (table.root / name).symlink_to(tmp_path / name)
    report = traces(table.root)
    assert found(report)["removed"] == {"region=north/a.parquet"}
    assert (found(report)["orphan"], report.log_files) == ({"region=north/orphan.parquet"}, 3)
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


def test_dropped_columns_of_no_version_or_of_other_types(tmp_path: Path) -> None:
    table = with_mapping(tmp_path / "none", ID, LATER)
    stats = json.dumps({"numRecords": 1, "minValues": {"col-2": MARKER}})
    add = table.write_file("old.parquet", {"col-1": [1], "col-2": [MARKER]})
    table.add(add | {"stats": stats})
    report = traces(table.root)
    assert found(report) == {"unreadable": {"old.parquet"}, "log": commits(1)}
    assert "col-2: it was dropped" in str(report)
    table = with_mapping(tmp_path / "other", NAME)
    table.append("old.parquet", {"col-2": [MARKER]})
    define(table, ("name", "col-9", "long"))
    table.append("new.parquet", {"col-9": [7]})
    assert found(traces(table.root)) == {"dropped": {"old.parquet"}}
    assert found(traces(table.root, [("name", "=", 7)])) == {"live": {"new.parquet"}}
