"""The commands that show tables, as people and as programs read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from delvec.cli.exits import ExitCode
from tests.cli.runner import run, run_json

NOON = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)
LONG = "part-00000-fae5310a-a37d-4e51-827b-c3d5516560ca-c000.snappy.parquet"


def add(
    path: str, size: int, rows: int | None, vector: Mapping[str, Any] | None = None, day: str = "1"
) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": path,
        "size": size,
        "partitionValues": {"day": day or None},
        "modificationTime": 5,
        "dataChange": True,
    }
    if rows is not None:
        statistics = {"minValues": {"id": 1}, "maxValues": {"id": 3}, "nullCount": {"id": 0}}
        action["stats"] = json.dumps(
            {"numRecords": rows, "tightBounds": vector is None, **statistics}
        )
    if vector:
        action["deletionVector"] = vector
    return {"add": action}


def vector(kind: str, text: str, size: int, rows: int, offset: int | None = 1) -> dict[str, Any]:
    found = {"storageType": kind, "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": rows}
    return found if offset is None else found | {"offset": offset}


IN_FILE = vector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 600)
INLINE = vector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 1, offset=None)


def table_actions() -> list[dict[str, Any]]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("day", "integer"))
    ]
    features = ["deletionVectors"]
    return [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet"},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["day"],
                "configuration": {},
            }
        },
    ]


def commit(root: Path, version: int, info: dict[str, Any] | None, *actions: dict[str, Any]) -> None:
    path = root / f"_delta_log/{version:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ([{"commitInfo": info}] if info else []) + list(actions)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seconds = (NOON + timedelta(hours=version)).timestamp()
    os.utime(path, (seconds, seconds))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three files; the second version deletes in two of them."""
    root = tmp_path / "orders"
    commit(
        root,
        0,
        {
            "operation": "WRITE",
            "operationParameters": {
                "mode": "Append",
                "partitionBy": '["day"]',
                "userMetadata": "[]",
            },
            "operationMetrics": {"numOutputRows": "2200", "numFiles": "3"},
            "engineInfo": "Apache-Spark/4.1.4 Delta-Lake/4.4.0",
        },
        *table_actions(),
        add("day=1/a.parquet", 1_234_567, 1000),
        add(f"day=2/{LONG}", 2_000_000, 1000, day="2"),
        add("day=__HIVE_DEFAULT_PARTITION__/c.parquet", 500, 200, day=""),
    )
    commit(
        root,
        1,
        {
            "operation": "DELETE",
            "operationParameters": {"predicate": '["(id#3L < 600)"]'},
            "operationMetrics": {
                "numDeletedRows": "601",
                "numDeletionVectorsAdded": "2",
                "numDeletionVectorsRemoved": "0",
                "numCopiedRows": "0",
            },
            "engineInfo": "delvec/0.1",
        },
        {"remove": {"path": f"day=2/{LONG}", "dataChange": True}},
        add(f"day=2/{LONG}", 2_000_000, 1000, IN_FILE, day="2"),
        {"remove": {"path": "day=1/a.parquet", "dataChange": True}},
        add("day=1/a.parquet", 1_234_567, 1000, INLINE),
    )
    return root


def test_files_shows_each_file_with_its_deleted_rows(table: Path) -> None:
    result = run("files", table)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == f"{table}: version 1"
    assert lines[2].split() == ["file", "partition", "rows", "deleted", "share", "vector", "size"]
    shown = [line.split() for line in lines[4:7]]
    assert shown[0] == [
        f"part-00000-fae5310a…{LONG[-20:]}",
        "day=2",
        *("1,000", "600", "████▊", "60.0", "%", "file", "40", "B", "1.9", "MiB"),
    ]
    assert shown[1] == [
        "a.parquet",
        "day=1",
        *("1,000", "1", "▏", "0.1", "%", "inline", "40", "B", "1.2", "MiB"),
    ]
    assert shown[2] == ["c.parquet", "day=NULL", "200", "500", "B"]
    assert lines[-1] == ("3 files, 3.1 MiB, 2,200 rows, 601 of them deleted (27.3 %) by 2 vectors")
    assert "statistics" not in result.output


def test_files_keeps_figures_whole_on_a_narrow_terminal(table: Path) -> None:
    result = run("files", table, columns=80)
    assert max(map(len, result.output.splitlines()[1:])) <= 80
    for text in ("████▊     60.0 %", "1.2 MiB", "y.parquet", "No room for: vector."):
        assert text in result.output


def test_files_as_json_tells_everything(table: Path) -> None:
    found = run_json("files", table)
    assert {key: found[key] for key in ("table", "version", "total")} == {
        "table": str(table),
        "version": 1,
        "total": {
            "files": 3,
            "bytes": 3_235_067,
            "row_count": 2200,
            "deleted_rows": 601,
            "files_with_vectors": 2,
            "files_without_row_count": 0,
        },
    }
    assert found["files"][0] == {
        "path": f"day=2/{LONG}",
        "partition_values": {"day": "2"},
        "size": 2_000_000,
        "modified": "1970-01-01T00:00:00.005+00:00",
        "row_count": 1000,
        "deleted_rows": 600,
        "vector": "u",
        "vector_bytes": 40,
        "descriptor": IN_FILE,
        "tight_bounds": False,
        "statistics": {"id": {"null_count": 0, "minimum": 1, "maximum": 3}},
    }
    assert found["files"][2]["partition_values"] == {"day": None}
    assert found["files"][2]["vector"] is None


def test_files_as_of_a_version_or_a_time(table: Path) -> None:
    by_version = run_json("files", table, "--version", "0")
    assert by_version["version"] == 0
    assert by_version["total"]["deleted_rows"] == 0
    assert run_json("files", table, "--timestamp", "2024-01-31 12:30") == by_version
    text = run("files", table, "--version", "0").output
    assert "3 files, 3.1 MiB, 2,200 rows; no row is deleted by a vector" in text
    assert "share" not in text
    both = run("files", table, "--version", "0", "--timestamp", "2024-01-31")
    assert both.exit_code == ExitCode.USAGE
    late = run("files", table, "--timestamp", "2025-01-01")
    assert late.exit_code == ExitCode.USAGE
    assert "the newest version is 1, of 2024-01-31 13:00:00.000+00:00" in late.output
    assert run("files", table, "--version", "7").exit_code == ExitCode.USAGE


def test_files_says_when_statistics_are_missing(table: Path) -> None:
    commit(table, 2, None, add("day=3/d.parquet", 1, None, day="3"))
    result = run("files", table)
    assert "4 files, 3.1 MiB, 601 rows deleted by 2 vectors" in result.output
    assert "The log has no statistics of 1 file: " in result.output
    total = run_json("files", table)["total"]
    assert total["row_count"] is None
    assert total["files_without_row_count"] == 1


def test_files_shows_the_first_of_many(table: Path) -> None:
    many = [add(f"day=1/{number}.parquet", 1, 1) for number in range(100)]
    commit(table, 2, None, *many)
    text = run("files", table).output
    assert "… and 53 more; --limit 0 shows all" in text
    assert text.index("600") < text.index("0.parquet")
    assert "more" not in run("files", table, "--limit", "0").output
    assert len(run_json("files", table, "--limit", "1")["files"]) == 103


def test_files_of_an_empty_table(tmp_path: Path) -> None:
    commit(tmp_path, 0, None, *table_actions())
    result = run("files", tmp_path)
    assert result.exit_code == 0, result.output
    assert "0 files, 0 B, 0 rows; no row is deleted by a vector" in result.output
    assert run_json("files", tmp_path)["files"] == []


def test_history_shows_what_was_done(table: Path) -> None:
    result = run("history", table)
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.output.splitlines() if line.strip()]
    assert lines[0] == f"{table}: 2 commits"
    assert [part.strip() for part in lines[3].split("   ") if part.strip()] == [
        "1",
        "2024-01-31 13:00:00",
        "DELETE",
        "where (id#3L < 600)",
        "601 deleted",
        "2 added",
        "delvec/0.1",
    ]
    assert [part.strip() for part in lines[4].split("   ") if part.strip()] == [
        "0",
        "2024-01-31 12:00:00",
        "WRITE",
        'mode=Append, partitionBy=["day"]',
        "2,200 written",
        "Apache-Spark/4.1.4 Delta-Lake/4.4.0",
    ]
    assert len(lines) == 5


def test_history_as_json_tells_everything_that_commits_say(table: Path) -> None:
    commit(table, 2, None, {"txn": {"appId": "a", "version": 1}})
    found = run_json("history", table)
    assert found["table"] == str(table)
    assert found["commits"][0] == {"version": 2, "timestamp": "2024-01-31T14:00:00.000+00:00"}
    assert found["commits"][1] == {
        "version": 1,
        "timestamp": "2024-01-31T13:00:00.000+00:00",
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
    assert run("history", table).exit_code == 0


def test_history_of_one_commit_that_says_nothing_shows_its_version(tmp_path: Path) -> None:
    commit(tmp_path, 0, None, *table_actions())
    lines = run("history", tmp_path).output.splitlines()
    assert lines[2].split() == ["version", "when", "(UTC)"]
    assert lines[4].split() == ["0", "2024-01-31", "12:00:00"]


def test_history_can_be_cut_short_and_says_so(table: Path) -> None:
    result = run("history", table, "--limit", "1")
    assert "1 commit\n" in result.output
    assert "Older commits are left out; without --limit all are shown." in result.output
    assert "WRITE" not in result.output
    assert len(run_json("history", table, "--limit", "1")["commits"]) == 1
    assert run("history", table, "--limit", "0").exit_code == ExitCode.USAGE


def test_history_reads_what_other_writers_say(table: Path) -> None:
    info = {
        "operation": "MERGE",
        "operationParameters": {"predicate": "id = 3", "matched": [{"type": "delete"}]},
        "operationMetrics": {"num_target_rows_deleted": 5, "num_output_rows": 1200},
        "clientVersion": "delta-rs.1.6.6",
    }
    commit(table, 2, info)
    text = run("history", table).output
    assert "where id = 3, matched=" in text
    assert "5 deleted, 1,200 written" in text


@pytest.mark.parametrize("name", ["files", "history"])
def test_errors_of_tables_become_exit_codes(name: str, table: Path, tmp_path: Path) -> None:
    missing = run(name, tmp_path / "nothing")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert "is not a Delta table" in missing.output
    assert run(name, table, "-o", "no-sign").exit_code == ExitCode.USAGE
    (table / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo"')
    damaged = run(name, table, "--json")
    assert damaged.exit_code == ExitCode.DAMAGED
    assert json.loads(damaged.output)["error"]["type"] == "FormatError"


def test_showing_tables_imports_no_spark(table: Path) -> None:
    code = f"""
import sys
from click.testing import CliRunner
from delvec.cli import main
for name in ("files", "history"):
    result = CliRunner().invoke(main, [name, {str(table)!r}])
    assert result.exit_code == 0, result.output
assert not {{"pyspark", "py4j"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
