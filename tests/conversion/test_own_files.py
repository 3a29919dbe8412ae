"""Which files of a target's location are its own, by their names."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from delvec.conversion.expiry import kind_of, list_own_files
from delvec.conversion.plan import ConversionPlan
from delvec.conversion.planning.options import ConversionOptions
from delvec.conversion.planning.planner import Planned
from delvec.delta.log.snapshot import open_snapshot
from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import TableName
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.client.own_location import first_bytes, metadata_of_others
from delvec.storage import Storage
from tests.delta.builder import small_table

ID = str(UUID(int=7))
OWN = {
    "metadata/v12.metadata.json": "metadata file",
    "metadata/v12.gz.metadata.json": "metadata file",
    f"metadata/00003-{ID}.metadata.json": "metadata file",
    f"metadata/{ID}.metadata.json": "metadata file",
    f"metadata/snap-123-1-{ID}.avro": "manifest list",
    f"metadata/{ID}-m0.avro": "manifest",
    f"metadata/optimized-m-{ID}.avro": "manifest",
    f"metadata/123-{ID}.stats": "statistics file",
    f"metadata/partition-stats-123-{ID}.parquet": "statistics file",
    f"data/{ID}-deletes.puffin": "vector file",
    f"deletion-vectors/{'a' * 32}-{ID}.parquet": "position delete file",
    f"some/where/{'0' * 32}-{ID}.parquet": "position delete file",
    f"data/copies/{'b' * 40}.parquet": "copied data file",
    f"data/copies/{'b' * 40}-{ID}.parquet": "copied data file",
    f"data/day=1/00000-5-{ID}-0-00001.parquet": "data file",
    f"data/00000-5-{ID}-00001-deletes.puffin": "data file",
    f"data/.delvec-staged-{'c' * 32}": "temporary file",
    f"data/copies/.{'b' * 40}.parquet.{'c' * 32}.tmp": "temporary file",
    f"data/copies/.{'b' * 40}-{ID}.parquet.{'c' * 32}.tmp": "temporary file",
}
OTHERS = (
    "metadata/version-hint.text",
    "metadata/notes.txt",
    f"metadata/.snap-123-1-{ID}.avro.crc",
    f"data/part-00000-{ID}-c000.snappy.parquet",
    f"data/{ID}.parquet",
    "data/copies/mine.parquet",
    f"data/day=1/{ID}-deletes.puffin",
    f"deletion_vector_{ID}.bin",
    f"snap-123-1-{ID}.avro",
    "part-0.parquet",
)


def test_files_are_known_by_names_that_only_iceberg_and_delvec_give() -> None:
    assert {key: kind_of(key) for key in OWN} == OWN
    assert {key: kind_of(key) for key in OTHERS} == dict.fromkeys(OTHERS)


def test_a_listing_has_own_files_and_counts_others(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    assert list_own_files(storage).files.num_rows == 0
    for key in (*OWN, *OTHERS):
        storage.write(key, b"x")
    found = list_own_files(storage)
    assert (
        dict(zip(*(found.files[name].to_pylist() for name in ("key", "kind")), strict=True)) == OWN
    )
    assert set(found.files["bytes"].to_pylist()) == {1}
    # Hadoop's pointer and its checksums are neither the one nor the other.
    assert found.unknown == len(OTHERS) - 2


@pytest.mark.parametrize(
    "key",
    [
        "_delta_log/00000000000000000000.json",
        "data/x/_delta_log/0.json",
        "new\nline/_delta_log/0.json",
        "x/metadata/v1.metadata.json.gz",
        "x/metadata/v1.metadata.json",
    ],
)
def test_a_table_inside_the_location_is_refused(tmp_path: Path, key: str) -> None:
    storage = Storage.open(tmp_path)
    storage.write(key, b"{}")
    with pytest.raises(PlanError, match="another table inside") as refused:
        list_own_files(storage)
    assert refused.value.hint


def test_metadata_of_other_tables_is_told_by_its_uuid_and_that_of_a_fork_by_its_time(
    tmp_path: Path,
) -> None:
    storage = Storage.open(tmp_path)
    mine, other, fork = (
        json.dumps(
            {"format-version": 3, "table-uuid": uuid, "last-updated-ms": at, "x": "y" * 9000}
        ).encode()
        for uuid, at in ((ID, 999), (str(UUID(int=8)), 999), (ID, 1000))
    )
    written = {
        "mine": mine,
        "other": other,
        "mine.gz": gzip.compress(mine),
        "other.gz": gzip.compress(other),
        "damaged.gz": gzip.compress(mine)[:12] + b"\xff" * 50,
        "of format 1": b'{"format-version": 1}',
        "empty": b"",
        "fork": fork,
        "fork.gz": gzip.compress(fork),
    }
    for key, data in written.items():
        storage.write(key, data)
    document = {
        "table-uuid": ID,
        "location": "/t",
        "format-version": 3,
        "last-updated-ms": 2000,
        "schemas": [{"schema-id": 0}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0}],
        "default-spec-id": 0,
        "last-column-id": 1,
        "metadata-log": [
            {"timestamp-ms": at, "metadata-file": f"/t/metadata/v{at}.metadata.json"}
            for at in (1000, 1500)
        ],
    }
    table = TableMetadata.from_json(json.dumps(document))
    read = partial(first_bytes, storage)
    others, forks = metadata_of_others(read, list(written), table, table.logged_since_ms)
    assert others == ["other", "other.gz", "damaged.gz", "of format 1"]
    # Newer than the oldest file that the table logs, and not logged.
    assert forks == ["fork", "fork.gz"]


REFUSED: list[dict[str, Any]] = [
    {"format_version": 1},
    {"format_version": 4},
    {"format_version": "3"},
    {"vectors": "copy"},
    {"vectors": None},
    {"history": "all"},
    {"foreign": True},
    {"format_version": 2, "vectors": "reference"},
    {"start_version": 3},
    {"start_version": 3, "history": "latest"},
    {"folder": ""},
    {"folder": "/absolute"},
    {"folder": "a//b"},
    {"folder": "../outside"},
    {"folder": "a/./b"},
    {"folder": "a/"},
]


@pytest.mark.parametrize("choices", REFUSED, ids=str)
def test_wrong_choices_are_refused_with_what_was_chosen(choices: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ConversionOptions(**choices)
    assert any(name in str(refused.value) for name in [*choices, "format 2"])


@pytest.mark.parametrize("verify", ["all", "", None, 2, "Rows"])
def test_an_unknown_way_to_verify_is_refused(tmp_path: Path, verify: Any) -> None:  # noqa: ANN401
    small_table(tmp_path)
    snapshot = open_snapshot(Storage.open(tmp_path))
    nobody: Any = None
    name = TableName("lake", ("db",), "t")
    plan = ConversionPlan(nobody, snapshot, name, None, ConversionOptions(), 3, Planned(None))
    with pytest.raises(InvalidArgumentError, match=r"'counts', 'rows' or 'none'"):
        plan.apply(verify)
    assert "version 2 is there already" in str(plan)
