"""Checkpoints that delvec writes lose nothing, large ones are read by row groups; manifests."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from time import time
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.scale.delta_log import Shape, write_delta_table
from numpy.typing import NDArray

from delvec import DeltaTable
from delvec.delta.log import checkpoint_reader, snapshot
from delvec.delta.log.checkpoint_reader import ParquetActions
from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.paths import one_array
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.skipping import statistics_columns as columns
from delvec.delta.skipping.predicate import parse_filters
from delvec.delta.skipping.statistics_columns import statistics_to_json
from delvec.delta.write.after_commit import write_manifests
from delvec.errors import UnsupportedFeatureError
from delvec.storage import Storage
from tests.delta import builder

Action = dict[str, Any]

NOW = int(time() * 1000)
EXPIRING = {"delta.setTransactionRetentionDuration": "interval 2 hours"}


def transactions() -> list[Action]:
    """Return transaction ids, of which the first alone has not expired by `EXPIRING`."""
    now = int(time() * 1000)
    return [
        {"txn": {"appId": "an hour ago", "version": 1, "lastUpdated": now - 3_600_000}},
        {"txn": {"appId": "long ago", "version": 1, "lastUpdated": now - 3 * 3_600_000}},
        {"txn": {"appId": "without a time", "version": 1}},
    ]


def snapshot_of(root: Path, version: int | None = None) -> Snapshot:
    return open_snapshot(Storage.open(root), version)


def actions_of(path: Path, kind: str) -> list[Action]:
    column = pq.read_table(path).column(kind)
    return [_plain(value) for value in column.filter(column.is_valid()).to_pylist()]


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return dict(value)
    return value


def checkpoint_of(table: builder.TableBuilder) -> Path:
    [path] = table.log.glob(f"{table.version:020d}.checkpoint*")
    return path


def written(table: builder.TableBuilder) -> Path:
    write_checkpoint(snapshot_of(table.root))
    return checkpoint_of(table)


def without_commits(table: builder.TableBuilder) -> None:
    table.drop_commits(*range(table.version + 1))


def rows_of(root: Path) -> list[Action]:
    rows: list[Action] = DeltaTable.for_path(None, root).to_arrow().to_pylist()
    return sorted(rows, key=str)


def hint_of(table: builder.TableBuilder) -> Action:
    hint: Action = json.loads((table.log / "_last_checkpoint").read_text())
    return hint


def test_a_version_is_read_from_its_checkpoint_alone(tmp_path: Path) -> None:
    table, live = builder.small_table(tmp_path)
    before = rows_of(table.root)
    path = written(table)
    assert path.name == f"{2:020d}.checkpoint.parquet"
    size, rows = path.stat().st_size, pq.read_metadata(path).num_rows
    expected = {"version": 2, "size": rows, "sizeInBytes": size, "numOfAddFiles": 2}
    assert hint_of(table) == expected
    without_commits(table)
    assert rows_of(table.root) == before
    kept = [(add["deletionVector"], add["dataChange"]) for add in actions_of(path, "add")]
    assert kept == [(add["deletionVector"], False) for add in live]


def test_a_hint_never_moves_back(tmp_path: Path) -> None:
    table, live = builder.small_table(tmp_path)
    table.add(live[0] | {"path": "part-9.parquet"})
    write_checkpoint(snapshot_of(table.root))
    write_checkpoint(snapshot_of(table.root, 2))
    assert (table.log / f"{2:020d}.checkpoint.parquet").exists()
    assert hint_of(table)["version"] == 3


@pytest.mark.parametrize("kind", ["classic", "json", "parquet"])
def test_a_checkpoint_that_is_there_stays(tmp_path: Path, kind: str) -> None:
    table, live = builder.small_table(tmp_path)
    if kind == "classic":
        [path] = table.checkpoint(live)
    else:
        path, *_ = table.checkpoint_with_sidecars(live, as_json=kind == "json")
    data = path.read_bytes()
    assert written(table).read_bytes() == data


def test_small_actions_are_kept_as_they_are(tmp_path: Path) -> None:
    table, _ = builder.small_table(tmp_path)
    table.commit(
        {"txn": {"appId": "stream", "version": 1, "lastUpdated": 5}},
        {"txn": {"appId": "other", "version": 7}},
        {"domainMetadata": {"domain": "kept", "configuration": "{}", "removed": False}},
        {"domainMetadata": {"domain": "gone", "configuration": "{}", "removed": False}},
    )
    described = {"name": "orders", "description": "all", "createdTime": 9}
    metadata = table.metadata() | described
    metadata["format"] = {"provider": "parquet", "options": {"a": "b"}}
    kept = {"appId": "stream", "version": 2, "lastUpdated": 6}
    table.commit(
        {"txn": kept},
        {"domainMetadata": {"domain": "gone", "configuration": "{}", "removed": True}},
        {"metaData": metadata},
    )
    first = written(table)
    last = {"appId": "last", "version": 1}
    table.commit({"txn": last})
    for path, more in ((first, []), (written(table), [last])):
        assert (actions_of(path, "protocol"), actions_of(path, "metaData")) == (
            [table.protocol],
            [metadata],
        )
        found = sorted(actions_of(path, "txn"), key=str)
        assert found == [*more, {"appId": "other", "version": 7}, kept]
        assert [each["domain"] for each in actions_of(path, "domainMetadata")] == ["kept"]


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_transaction_ids_expire(tmp_path: Path, policy: str) -> None:
    properties = {**EXPIRING, "delta.checkpointPolicy": policy}
    protocol = builder.protocol_of("v2Checkpoint")
    table = builder.TableBuilder.made(tmp_path, protocol=protocol, properties=properties)
    table.commit(*transactions())
    assert [each["appId"] for each in actions_of(written(table), "txn")] == ["an hour ago"]


def test_everything_of_an_add_is_kept_over_two_checkpoints(tmp_path: Path) -> None:
    fields = {"id": "long", "day": "date", "p": "string"}
    table = builder.TableBuilder.made(tmp_path, fields=fields, partition_columns=["day", "p"])
    files = [
        ("2024-01-31", "a b", "day=2024-01-31/p=a%20b/x%25y"),
        (None, None, "day=__HIVE_DEFAULT_PARTITION__/p=n/y"),
        ("2024-02-29", "ü", "file:///elsewhere/z"),
    ]
    adds = [
        table.write_file(f"f{number}", {"id": [number]}, {"day": day, "p": p})
        | {"path": path, "baseRowId": number, "defaultRowCommitVersion": 1}
        for number, (day, p, path) in enumerate(files)
    ]
    adds[0] |= {"tags": {"ZCUBE_ID": "1", "b": "2"}, "clusteringProvider": "liquid"}
    table.add(*adds[:2])
    first = written(table)
    table.add(adds[2])
    for path, expected in ((first, adds[:2]), (written(table), adds)):
        found = {add["path"]: add for add in actions_of(path, "add")}
        assert found.keys() == {add["path"] for add in expected}
        for add in expected:
            entry = found[add["path"]]
            parsed = entry.pop("partitionValues_parsed", {})
            none: Action = {"minValues": {}, "maxValues": {}, "nullCount": {}}
            assert entry.pop("stats_parsed") == {"numRecords": 1, **none}
            values = {name: text for name, text in add["partitionValues"].items() if text}
            entry["partitionValues"] = {k: v for k, v in entry["partitionValues"].items() if v}
            assert entry == add | {"dataChange": False, "partitionValues": values}
            day = add["partitionValues"]["day"]
            assert parsed.get("day") == (date.fromisoformat(day) if day else None)


def removes_in(path: Path) -> list[tuple[str, str | None]]:
    return sorted(
        (each["path"], (each.get("deletionVector") or {}).get("pathOrInlineDv"))
        for each in actions_of(path, "remove")
    )


def test_removes_stay_until_they_expire(tmp_path: Path) -> None:
    table, live = builder.small_table(tmp_path / "other")
    plain = {key: value for key, value in live[0].items() if key != "deletionVector"}
    table.commit({"remove": builder.removed(plain) | {"deletionTimestamp": NOW}})
    path = written(table)
    # A file without its vector is another than with it.
    assert removes_in(path) == [("part-0.parquet", None)]
    assert {add["path"] for add in actions_of(path, "add")} == {"part-0.parquet", "part-1.parquet"}
    table, live = builder.small_table(tmp_path / "t")
    vector = live[0]["deletionVector"]
    fresh = builder.removed(live[0]) | {"deletionTimestamp": NOW, "stats": "{}", "size": 5}
    old = builder.removed(live[1]) | {"deletionTimestamp": NOW - 8 * 86_400_000}
    table.commit({"remove": fresh}, {"remove": old})
    path, kept = written(table), ("part-0.parquet", vector["pathOrInlineDv"])
    assert removes_in(path) == [kept]
    [remove] = actions_of(path, "remove")
    assert remove.items() >= {"deletionTimestamp": NOW, "size": 5}.items()
    assert remove["deletionVector"] == vector
    table.add(live[1] | {"path": "new"})
    assert removes_in(written(table)) == [kept]
    # The file comes back with the same vector: it is no longer removed.
    table.add(live[0])
    path = written(table)
    assert removes_in(path) == []
    assert {add["path"] for add in actions_of(path, "add")} == {"new", "part-0.parquet"}


@pytest.mark.parametrize(
    ("retention", "kept"), [("interval 9 days", 1), ("7 days", 0), ("some time", 1), ("-9 days", 1)]
)
def test_the_table_says_how_long_removes_stay(tmp_path: Path, retention: str, kept: int) -> None:
    table = builder.TableBuilder.made(
        tmp_path, properties={"delta.deletedFileRetentionDuration": retention}
    )
    old = {"path": "a", "deletionTimestamp": NOW - 8 * 86_400_000, "dataChange": True}
    table.commit({"remove": old})
    assert len(removes_in(written(table))) == kept


STATS = {
    "numRecords": 3,
    "minValues": {"id": 1, "s": 'a"\\', "d": 1.10, "t": "2024-01-31T10:00:00.000Z"},
    "maxValues": {"id": 3, "s": "z\n\u1234", "d": 2.25, "t": "2024-01-31T11:00:00.123Z"},
    "nullCount": {"id": 0, "s": 1, "d": 0, "t": 0, "flag": 2},
    "tightBounds": False,
}
FIELDS = {"id": "long", "s": "string", "d": "decimal(10,2)", "t": "timestamp", "flag": "boolean"}


def table_with_statistics(root: Path, **properties: str) -> builder.TableBuilder:
    named = {f"delta.checkpoint.{name}": value for name, value in properties.items()}
    table = builder.TableBuilder.made(root, fields=FIELDS, properties=named)
    table.add(table.write_file("a", {"id": [1, 2, 3]}) | {"stats": json.dumps(STATS)})
    return table


def test_statistics_are_text_and_columns_by_default(tmp_path: Path) -> None:
    [add] = actions_of(written(table_with_statistics(tmp_path)), "add")
    assert json.loads(add["stats"]) == STATS
    low = datetime(2024, 1, 31, 10, tzinfo=timezone.utc)
    high = datetime(2024, 1, 31, 11, 0, 0, 123_000, tzinfo=timezone.utc)
    assert add["stats_parsed"] == {
        "numRecords": 3,
        "tightBounds": False,
        "nullCount": STATS["nullCount"],
        "minValues": {"id": 1, "s": 'a"\\', "d": Decimal("1.10"), "t": low},
        "maxValues": {"id": 3, "s": "z\n\u1234", "d": Decimal("2.25"), "t": high},
    }


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("false", "true", {"stats_parsed"}),
        ("true", "false", {"stats"}),
        ("false", "false", {"stats"}),  # row counts are never lost
    ],
)
def test_forms_are_chosen(tmp_path: Path, text: str, columns: str, expected: set[str]) -> None:
    chosen = {"writeStatsAsJson": text, "writeStatsAsStruct": columns}
    [add] = actions_of(written(table_with_statistics(tmp_path, **chosen)), "add")
    assert {name for name in add if name.startswith("stats")} == expected


@pytest.mark.parametrize("columns", ["true", "false"])
def test_statistics_that_were_columns_alone_become_text_again(tmp_path: Path, columns: str) -> None:
    table = table_with_statistics(tmp_path, writeStatsAsJson="false")
    written(table)
    without_commits(table)
    files = snapshot_of(table.root).files
    assert files.row_counts.to_pylist() == [3]
    [file] = files.entries([0])
    assert json.loads(file.add["stats"])["nullCount"] == STATS["nullCount"]
    table.properties = {"delta.checkpoint.writeStatsAsStruct": columns}
    table.redefine()
    [add] = actions_of(written(table), "add")
    found = json.loads(add["stats"])
    for bounds in (found["minValues"], found["maxValues"]):
        bounds["t"] = bounds["t"].replace("000Z", "Z")
    assert found == STATS


def test_what_json_cannot_say_is_left_out() -> None:
    values = pa.array([{"a": float("nan"), "b": 1.5, "c": b"x"}, {"a": 1e300}, None])
    assert statistics_to_json(values).to_pylist() == ['{"b":1.5}', '{"a":1e+300}', None]


@pytest.mark.parametrize("files", [0, 2])
def test_a_checkpoint_of_the_second_kind_has_a_sidecar(tmp_path: Path, files: int) -> None:
    table = builder.TableBuilder.made(tmp_path, properties={"delta.checkpointPolicy": "v2"})
    assert written(table).name == f"{0:020d}.checkpoint.parquet", "it needs the feature"
    table.commit({"protocol": builder.protocol_of("deletionVectors", "v2Checkpoint")})
    table.add(*(table.write_file(f"f{number}", {"id": [number]}) for number in range(files)))
    before = rows_of(table.root)
    path = written(table)
    assert [each["version"] for each in actions_of(path, "checkpointMetadata")] == [2]
    sidecars = actions_of(path, "sidecar")
    sizes = [(table.log / "_sidecars" / each["path"]).stat().st_size for each in sidecars]
    assert (sizes, len(sizes)) == ([each["sizeInBytes"] for each in sidecars], 1 if files else 0)
    without_commits(table)
    assert (rows_of(table.root), hint_of(table)["numOfAddFiles"]) == (before, files)


FILES = 200


def read(path: Path) -> dict[str, Any]:
    """Read all that a table's log says, and what a predicate leaves of it."""
    found = DeltaTable.for_path(None, path).snapshot()
    predicate = parse_filters([("id", "<", 50_000_000)], found.metadata.schema)
    return {
        "paths": found.files.paths.to_pylist(),
        "rows": found.files.row_counts.to_pylist(),
        "entries": [(entry.path, entry.add) for entry in found.files.entries()],
        "pruned": found.files.prune(predicate, "UTC").paths.to_pylist(),
    }


@pytest.mark.parametrize("statistics", ["json", "columns", "both"])
def test_a_checkpoint_that_is_read_by_row_groups_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statistics: Literal["json", "columns", "both"]
) -> None:
    write_delta_table(tmp_path, Shape(FILES, "classic", row_group=30, statistics=statistics))
    expected = read(tmp_path)
    monkeypatch.setattr(checkpoint_reader, "_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(columns, "_BYTES_AT_ONCE", 1000)
    assert read(tmp_path) == expected
    assert len(expected["paths"]) > FILES > len(expected["pruned"]) > 0


def test_entries_come_from_their_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_delta_table(tmp_path, Shape(FILES, "classic", row_group=30))
    files = DeltaTable.for_path(None, tmp_path).snapshot().files
    wanted = [path for path in files.paths.to_pylist() if path.startswith("day=2024-05-30/")]
    [index] = [files.paths.index(path).as_py() for path in wanted]
    groups = []
    whole = ParquetActions._entries

    def noted(self: ParquetActions, group: int, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        groups.append(group)
        return whole(self, group, rows)

    monkeypatch.setattr(ParquetActions, "_entries", noted)
    last = len(files) - 1
    found = files.entries([last, index, last - 1])
    assert [entry.path for entry in found] == files.paths.take([last, index, last - 1]).to_pylist()
    assert found[1].add["stats"].startswith('{"numRecords":1000000,"minValues":{"id":150000000,')
    assert found[1].add["partitionValues"] == {"day": "2024-05-30"}
    # The first row group has protocol and metadata, then come 30 files in each.
    assert sorted(groups) == [1 + 150 // 30, 1 + (FILES - 1) // 30]


def test_more_paths_than_an_array_of_arrow_holds_are_refused() -> None:
    paths = pa.array(["x" * (1 << 20)] * 64)
    with pytest.raises(UnsupportedFeatureError, match="lake/orders has too many files"):
        one_array([paths] * 33, "lake/orders")


def test_setting_a_property_reads_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_delta_table(tmp_path, Shape(10))

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("all files are replayed")

    monkeypatch.setattr(snapshot, "replay_commits", refused)
    assert DeltaTable.for_path(None, tmp_path).set_properties({"owner": "lake"}).version == 11


def test_small_reads_take_no_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends while such a thread frees what Python read is aborted."""
    write_delta_table(tmp_path, Shape(FILES, "classic", row_group=30))
    threads = []
    whole = pq.ParquetFile.read

    def noted(self: pq.ParquetFile, **options: Any) -> pa.Table:  # noqa: ANN401
        threads.append(options["use_threads"])
        return whole(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "read", noted)
    read(tmp_path)
    assert set(threads) == {False}
    monkeypatch.setattr(checkpoint_reader, "wants_threads", lambda _: True)
    read(tmp_path)
    assert set(threads) == {False, True}


def manifests(root: Path) -> dict[str, list[str]]:
    folder = root / "_symlink_format_manifest"
    files = (file for file in folder.rglob("*") if file.is_file() and file.name[0] != ".")
    return {str(file.relative_to(folder)): sorted(file.read_text().split("\n")) for file in files}


def write(root: Path) -> None:
    write_manifests(open_snapshot(Storage.open(root)))


def test_a_table_without_partitions_has_one(tmp_path: Path) -> None:
    table = builder.TableBuilder.made(tmp_path)
    write(tmp_path)
    assert manifests(tmp_path) == {"manifest": [""]}
    table.add(table.write_file("a", {"id": [1]}) | {"path": "a%20b"})
    assert table.handle.generate_manifest() == 1
    assert manifests(tmp_path) == {"manifest": ["", f"file:{tmp_path}/a b"]}


def test_partitions_that_are_empty_now_lose_theirs(tmp_path: Path) -> None:
    table = builder.TableBuilder.made(
        tmp_path, fields={"id": "long", "p": "string"}, partition_columns=["p"]
    )
    adds = [table.write_file(f"f{p}", {"id": [1]}, {"p": p}) for p in ("a", "b:c", None)]
    table.add(*adds)
    write(tmp_path)
    null = "p=__HIVE_DEFAULT_PARTITION__/manifest"
    assert set(manifests(tmp_path)) == {"p=a/manifest", "p=b%3Ac/manifest", null}
    table.commit({"remove": builder.removed(adds[0])})
    write(tmp_path)
    assert set(manifests(tmp_path)) == {"p=b%3Ac/manifest", null}


def test_vectors_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    table, _ = builder.small_table(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match=r"2 files of .* have deletion vectors") as e:
        write(table.root)
    assert "purge()" in str(e.value.hint)
    assert manifests(table.root) == {}


def test_mapped_columns_are_refused(tmp_path: Path) -> None:
    builder.TableBuilder.made(
        tmp_path, properties=builder.MAPPED, fields=[builder.mapped_field("id", "long", 1)]
    )
    with pytest.raises(UnsupportedFeatureError, match="other names"):
        write(tmp_path)
