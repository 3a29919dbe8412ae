"""The commands that show tables, as people and as programs read them."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from delvec.cli.exits import ExitCode
from tests.cli.runner import run, run_json
from tests.delta.builder import TableBuilder

NOON = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)
LONG = "part-00000-fae5310a-a37d-4e51-827b-c3d5516560ca-c000.snappy.parquet"


def add(
    path: str, size: int, rows: int | None, vector: dict[str, Any] | None = None, day: str = "1"
) -> dict[str, Any]:
    action: dict[str, Any] = {"path": path, "size": size, "partitionValues": {"day": day or None}}
    action |= {"modificationTime": 5, "dataChange": True}
    if rows is not None:
        bounds = {"minValues": {"id": 1}, "maxValues": {"id": 3}, "nullCount": {"id": 0}}
        counts = {"numRecords": rows, "tightBounds": vector is None}
        action["stats"] = json.dumps({**bounds, **counts})
    return {"add": action | ({"deletionVector": vector} if vector else {})}


IN_FILE = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"} | {
    "offset": 1,
    "sizeInBytes": 40,
    "cardinality": 600,
}
INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 1,
}
DELETE = {
    "operation": "DELETE",
    "operationParameters": {"predicate": '["(id#3L < 600)"]'},
    "operationMetrics": {
        "numDeletedRows": "601",
        "numDeletionVectorsAdded": "2",
        "numDeletionVectorsRemoved": "0",
        "numCopiedRows": "0",
    },
    "engineInfo": "delvec/0.1",
}
WRITE = {
    "operation": "WRITE",
    "operationParameters": {"mode": "Append", "partitionBy": '["day"]', "userMetadata": "[]"},
    "operationMetrics": {"numOutputRows": "2200", "numFiles": "3"},
    "engineInfo": "Apache-Spark/4.1.4 Delta-Lake/4.4.0",
}


def commit(root: Path, version: int, info: dict[str, Any] | None, *actions: dict[str, Any]) -> None:
    path = root / f"_delta_log/{version:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ([{"commitInfo": info}] if info else []) + list(actions)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seconds = (NOON + timedelta(hours=version)).timestamp()
    os.utime(path, (seconds, seconds))


def create(root: Path, info: dict[str, Any] | None, *actions: dict[str, Any]) -> None:
    new = TableBuilder(root, fields={"id": "long", "day": "integer"}, partition_columns=["day"])
    commit(root, 0, info, {"protocol": new.protocol}, {"metaData": new.metadata()}, *actions)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three files; the second version deletes in two of them."""
    root = tmp_path / "orders"
    first, second = "day=1/a.parquet", f"day=2/{LONG}"
    third = add("day=__HIVE_DEFAULT_PARTITION__/c.parquet", 500, 200, day="")
    create(root, WRITE, add(first, 1_234_567, 1000), add(second, 2_000_000, 1000, day="2"), third)
    new = add(second, 2_000_000, 1000, IN_FILE, day="2"), add(first, 1_234_567, 1000, INLINE)
    old = ({"remove": {"path": path, "dataChange": True}} for path in (first, second))
    commit(root, 1, DELETE, *old, *new)
    return root


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_files_shows_each_file_with_its_deleted_rows(table: Path) -> None:
    output = run("files", table, code=0).output
    heading, _, titles, _, *shown, _, _ = words(output)[:9]
    assert heading == [f"{table}:", "version", "1"]
    assert titles == ["file", "partition", "rows", "deleted", "share", "vector", "size"]
    assert [" ".join(line) for line in shown] == [
        f"part-00000-fae5310a…{LONG[-20:]} day=2 1,000 600 ████▊ 60.0 % file 40 B 1.9 MiB",
        "a.parquet day=1 1,000 1 ▏ 0.1 % inline 40 B 1.2 MiB",
        "c.parquet day=NULL 200 500 B",
    ]
    told = "3 files, 3.1 MiB, 2,200 rows, 601 of them deleted (27.3 %) by 2 vectors"
    assert output.splitlines()[-1] == told
    assert "statistics" not in output
    narrow = run("files", table, columns=80).output
    assert max(map(len, narrow.splitlines()[1:])) <= 80
    for text in ("████▊     60.0 %", "1.2 MiB", "y.parquet", "No room for: vector."):
        assert text in narrow
    found = run_json("files", table)
    total, [first, _, last] = found["total"], found["files"]
    assert (total["bytes"], total["row_count"], total["deleted_rows"]) == (3_235_067, 2200, 601)
    assert (first["path"], first["size"]) == (f"day=2/{LONG}", 2_000_000)
    assert first["modified"] == "1970-01-01T00:00:00.005+00:00"
    assert (first["descriptor"], first["vector_bytes"]) == (IN_FILE, 40)
    assert first["tight_bounds"] is False
    assert first["statistics"] == {"id": {"null_count": 0, "minimum": 1, "maximum": 3}}
    assert (last["partition_values"], last["vector"]) == ({"day": None}, None)


def test_files_as_of_a_version_or_a_time(table: Path) -> None:
    by_version = run_json("files", table, "--version", "0")
    assert (by_version["version"], by_version["total"]["deleted_rows"]) == (0, 0)
    assert run_json("files", table, "--timestamp", "2024-01-31 12:30") == by_version
    text = run("files", table, "--version", "0").output
    assert "3 files, 3.1 MiB, 2,200 rows; no row is deleted by a vector" in text
    assert "share" not in text
    late = run("files", table, "--timestamp", "2025-01-01", code=ExitCode.USAGE)
    assert "the newest version is 1, of 2024-01-31 13:00:00.000+00:00" in late.output
    run("files", table, "--version", "7", code=ExitCode.USAGE)


def test_files_says_when_statistics_are_missing_and_shows_the_first_of_many(table: Path) -> None:
    commit(table, 2, None, add("day=3/d.parquet", 1, None, day="3"))
    text = run("files", table).output
    assert "4 files, 3.1 MiB, 601 rows deleted by 2 vectors" in text
    assert "The log has no statistics of 1 file: " in text
    total = run_json("files", table)["total"]
    assert (total["row_count"], total["files_without_row_count"]) == (None, 1)
    commit(table, 3, None, *(add(f"day=1/{number}.parquet", 1, 1) for number in range(100)))
    text = run("files", table).output
    assert "… and 54 more; --limit 0 shows all" in text
    assert text.index("600") < text.index("0.parquet")
    assert "more" not in run("files", table, "--limit", "0").output
    assert len(run_json("files", table, "--limit", "1")["files"]) == 104


def test_an_empty_table_whose_commit_says_nothing(tmp_path: Path) -> None:
    create(tmp_path, None)
    assert "0 files, 0 B, 0 rows; no row is deleted by a vector" in run("files", tmp_path).output
    lines = run("history", tmp_path).output.splitlines()
    assert lines[2].split() == ["version", "when", "(UTC)"]
    assert lines[4].split() == ["0", "2024-01-31", "12:00:00"]


def test_history_shows_what_was_done_whoever_did_it(table: Path) -> None:
    info = {
        "operation": "MERGE",
        "operationParameters": {"predicate": "id = 3", "matched": [{"type": "delete"}]},
        "operationMetrics": {"num_target_rows_deleted": 5, "num_output_rows": 1200},
        "clientVersion": "delta-rs.1.6.6",
    }
    commit(table, 2, info)
    lines = words(run("history", table, code=0).output)
    assert lines[0] == [f"{table}:", "3", "commits"]
    of_others = 'MERGE where id = 3, matched=[{"type":"delete"}] 5 deleted, 1,200 written'
    of_spark = 'WRITE mode=Append, partitionBy=["day"] 2,200 written Apache-Spark/4.1.4'
    assert [" ".join(line) for line in lines[4:7]] == [
        f"2 2024-01-31 14:00:00 {of_others}",
        "1 2024-01-31 13:00:00 DELETE where (id#3L < 600) 601 deleted 2 added delvec/0.1",
        f"0 2024-01-31 12:00:00 {of_spark} Delta-Lake/4.4.0",
    ]
    commit(table, 3, None, {"txn": {"appId": "a", "version": 1}})
    assert run_json("history", table)["commits"][:3:2] == [
        {"version": 3, "timestamp": "2024-01-31T15:00:00.000+00:00"},
        {"version": 1, "timestamp": "2024-01-31T13:00:00.000+00:00", **DELETE},
    ]
    cut = run("history", table, "--limit", "1").output
    assert "1 commit\n" in cut
    assert "Older commits are left out; without --limit all are shown." in cut
    assert "WRITE" not in cut
    assert len(run_json("history", table, "--limit", "1")["commits"]) == 1


@pytest.mark.parametrize("name", ["files", "history"])
def test_a_damaged_log_has_an_exit_code(name: str, table: Path) -> None:
    (table / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo"')
    damaged = run(name, table, "--json", code=ExitCode.DAMAGED)
    assert json.loads(damaged.output)["error"]["type"] == "FormatError"
