"""Damaged, forged and future tables: an error that names what and where, never a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delvec import DeltaTable
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.vectors import load_vectors
from delvec.errors import ObjectNotFoundError
from delvec.storage import Storage
from delvec.vector import Bitmap, Descriptor
from tests.delta.builder import TableBuilder, removed, small_table, table_with
from tests.delta.log.damages import CASES, rewritten, with_vector

ALIVE = [*range(1, 9), *range(10, 13), *range(15, 20)]


def ids_of(root: Path, *args: Any, **options: Any) -> list[int]:  # noqa: ANN401
    found = DeltaTable.for_path(None, root).to_arrow(*args, **options)
    return sorted(found.column("id").to_pylist())


@pytest.mark.parametrize("name", CASES)
def test_arrow_gives_an_error_that_names_what_and_where(tmp_path: Path, name: str) -> None:
    expected = CASES[name](tmp_path / "table")
    with pytest.raises(expected.error) as caught:
        ids_of(tmp_path / "table")
    assert [word for word in expected.words if word not in str(caught.value)] == []


def test_the_table_that_all_cases_damage_is_read(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    assert (ids_of(tmp_path), table.handle.count()) == (ALIVE, len(ALIVE))
    assert (ids_of(tmp_path, version=1), ids_of(tmp_path, version=0)) == (list(range(20)), [])
    # Vectors count when the property that writes them is off.
    table.properties = {"delta.enableDeletionVectors": "false"}
    table.redefine()
    assert table.handle.properties == table.properties
    assert (ids_of(tmp_path), table.handle.count()) == (ALIVE, len(ALIVE))
    # Unknown actions and fields are passed over.
    rewritten(table.commit_path(2), with_vector("part-0.parquet", futureField={"a": [1, None]}))
    table.commit({"futureAction": {"path": "part-0.parquet", "size": "large"}})
    table.commit({"cdc": {"path": "_change_data/x.parquet", "size": 1}})
    table.add(adds[0] | {"futureField": {"a": [1]}, "tags": {"a": "b"}})
    assert ids_of(tmp_path) == ALIVE


@pytest.mark.parametrize("kind", ["classic", "parts", "json", "parquet"])
def test_checkpoints_of_every_kind_are_read(tmp_path: Path, kind: str) -> None:
    table, adds = small_table(tmp_path)
    if kind in ("json", "parquet"):
        table.checkpoint_with_sidecars(adds, as_json=kind == "json")
    else:
        table.checkpoint(adds, parts=3 if kind == "parts" else 1)
    table.drop_commits(0, 1)
    assert ids_of(tmp_path) == ALIVE
    table.drop_commits(2)
    assert ids_of(tmp_path) == ALIVE
    files = table.handle.snapshot().files
    assert files.row_counts.to_pylist() == [10, 10]
    assert {file.add["path"] for file in files.entries(range(2))} == {each["path"] for each in adds}
    table.delete_rows(adds[0], [0, 1, 9], prefix="ab")
    assert ids_of(tmp_path) == [number for number in ALIVE if number != 1]


@pytest.mark.parametrize(
    "hint", ["", "{", "[]", '{"version": "2"}', '{"version": 99}', '{"version": -1}', "\x00\x01"]
)
def test_a_damaged_hint_at_the_last_checkpoint_does_no_harm(tmp_path: Path, hint: str) -> None:
    table, adds = small_table(tmp_path)
    table.checkpoint(adds)
    table.write_hint(hint)
    assert ids_of(tmp_path) == ALIVE


@pytest.mark.parametrize(("per_bin", "bins"), [(1, 12), (4, 3), (12, 1)])
def test_a_read_costs_few_requests(tmp_path: Path, per_bin: int, bins: int) -> None:
    """A listing, and a request for each commit and each file of vectors."""
    table, adds = table_with(tmp_path, *[{"id": range(100)}] * 12)
    deleted = [sorted({number, 2 * number, 99}) for number in range(12)]
    vectors = []
    for start in range(0, 12, per_bin):
        vectors += table.write_vectors(*deleted[start : start + per_bin])
    live = [add | {"deletionVector": each} for add, each in zip(adds, vectors, strict=True)]
    table.commit(*({"remove": removed(add)} for add in adds), *({"add": add} for add in live))
    storage = Storage.open(tmp_path)
    files = open_snapshot(storage).files.data_files()
    opened = storage.requests
    # Three commits, and the hint at a checkpoint that is not there.
    assert (opened.gets <= 4, opened.lists, opened.heads) == (True, 1, 0)
    loaded = load_vectors(storage, files)
    made = storage.requests - opened
    assert (made.gets, made.heads, made.lists) == (bins, 0, 0)
    by_path = {file.path: vector for file, vector in zip(files, loaded, strict=True)}
    expected = {f"part-{number}.parquet": Bitmap(rows) for number, rows in enumerate(deleted)}
    assert by_path == expected


def test_only_the_vectors_of_files_that_are_read_are_loaded(tmp_path: Path) -> None:
    fields = {"id": "long", "p": "integer"}
    table = TableBuilder.made(tmp_path, fields=fields, partition_columns=["p"])
    adds = [
        table.append(f"p={p}/part.parquet", {"id": [p, p + 10]}, {"p": str(p)}) for p in range(4)
    ]
    vectors = [table.delete_rows(add, [0])["deletionVector"] for add in adds]
    for number, vector in enumerate(vectors):
        if number != 2:
            (tmp_path / str(Descriptor.from_json(vector).file_path)).unlink()
    assert ids_of(tmp_path, [("p", "=", 2)]) == [12]
    with pytest.raises(ObjectNotFoundError):
        ids_of(tmp_path)


def test_positions_of_row_groups_meet_the_vector(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    options = {"row_group_size": 37, "data_page_size": 64}
    gone = [*range(30, 80), 500, 999]
    table.delete_rows(table.append("part-0.parquet", {"id": range(1000)}, **options), gone)
    alive = [number for number in range(1000) if number not in gone]
    some = [number for number in range(480, 520) if number != 500]
    assert ids_of(tmp_path) == alive
    assert ids_of(tmp_path, [("id", ">=", 480), ("id", "<", 520)]) == some
