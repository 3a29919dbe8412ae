"""Damaged, forged and future tables: an error that names what and where, never a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import delvec.delta.table as delta
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.vectors import load_vectors
from delvec.errors import ObjectNotFoundError
from delvec.storage import Storage
from delvec.vector import Bitmap
from tests.delta.builder import TableBuilder, removed, small_table
from tests.delta.log.damages import CASES, rewritten, with_vector

ALIVE = [*range(1, 9), *range(10, 13), *range(15, 20)]


def ids_of(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


@pytest.mark.parametrize("name", CASES)
def test_arrow_gives_an_error_that_names_what_and_where(tmp_path: Path, name: str) -> None:
    expected = CASES[name](tmp_path / "table")
    with pytest.raises(expected.error) as caught:
        delta.DeltaTable.for_path(None, tmp_path / "table").to_arrow()
    for word in expected.words:
        assert word in str(caught.value)


def test_the_table_that_all_cases_damage_is_read(tmp_path: Path) -> None:
    small_table(tmp_path)
    table = delta.DeltaTable.for_path(None, tmp_path)
    assert (ids_of(table.to_arrow()), table.count()) == (ALIVE, len(ALIVE))
    assert ids_of(table.to_arrow(version=1)) == list(range(20))
    assert ids_of(table.to_arrow(version=0)) == []


@pytest.mark.parametrize("kind", ["classic", "parts", "json", "parquet"])
def test_checkpoints_of_every_kind_are_read(tmp_path: Path, kind: str) -> None:
    table, adds = small_table(tmp_path)
    if kind in ("json", "parquet"):
        table.checkpoint_with_sidecars(adds, as_json=kind == "json")
    else:
        table.checkpoint(adds, parts=3 if kind == "parts" else 1)
    table.drop_commits(0, 1)
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE
    table.drop_commits(2)
    opened = delta.DeltaTable.for_path(None, tmp_path)
    assert ids_of(opened.to_arrow()) == ALIVE
    files = opened.snapshot().files
    assert files.row_counts.to_pylist() == [10, 10]
    assert {file.add["path"] for file in files.entries(range(2))} == {each["path"] for each in adds}
    table.delete_rows(adds[0], [0, 1, 9], prefix="ab")
    left = [number for number in ALIVE if number != 1]
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == left


@pytest.mark.parametrize(
    "hint", ["", "{", "[]", '{"version": "2"}', '{"version": 99}', '{"version": -1}', "\x00\x01"]
)
def test_a_damaged_hint_at_the_last_checkpoint_does_no_harm(tmp_path: Path, hint: str) -> None:
    table, adds = small_table(tmp_path)
    table.checkpoint(adds)
    table.write_hint(hint)
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE


def test_vectors_count_when_the_property_that_writes_them_is_off(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    table.properties = {"delta.enableDeletionVectors": "false"}
    table.commit({"metaData": table.metadata()})
    opened = delta.DeltaTable.for_path(None, tmp_path)
    assert (opened.properties, ids_of(opened.to_arrow())) == (table.properties, ALIVE)
    assert opened.count() == len(ALIVE)


def test_unknown_actions_and_fields_are_passed_over(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    path = table.commit_path(2)
    rewritten(path, with_vector("part-0.parquet", futureField={"a": [1, None]}))
    table.commit({"futureAction": {"path": "part-0.parquet", "size": "large"}})
    table.commit({"cdc": {"path": "_change_data/x.parquet", "size": 1}})
    table.add(adds[0] | {"futureField": {"a": [1]}, "tags": {"a": "b"}})
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE


def many_vectors(root: Path, files: int, per_bin: int) -> list[list[int]]:
    """Make a table whose files all have vectors, several in each `.bin`; give the deleted rows."""
    table = TableBuilder.made(root)
    names = [f"part-{number:02d}.parquet" for number in range(files)]
    adds = [table.write_file(name, {"id": list(range(100))}) for name in names]
    table.add(*adds)
    deleted = [sorted({number, 2 * number, 99}) for number in range(files)]
    live = []
    for start in range(0, files, per_bin):
        vectors = table.write_vectors(*deleted[start : start + per_bin])
        live += [
            add | {"deletionVector": vector}
            for add, vector in zip(adds[start : start + per_bin], vectors, strict=True)
        ]
    table.commit(*({"remove": removed(add)} for add in adds), *({"add": add} for add in live))
    return deleted


@pytest.mark.parametrize(("per_bin", "bins"), [(1, 12), (4, 3), (12, 1)])
def test_a_read_costs_few_requests(tmp_path: Path, per_bin: int, bins: int) -> None:
    deleted = many_vectors(tmp_path, 12, per_bin)
    storage = Storage.open(tmp_path)
    files = open_snapshot(storage).files.data_files()
    opened = storage.requests
    # Three commits, and the hint at a checkpoint that is not there.
    assert (opened.gets <= 4, opened.lists, opened.heads) == (True, 1, 0)
    vectors = load_vectors(storage, files)
    made = storage.requests - opened
    assert (made.gets, made.heads, made.lists) == (bins, 0, 0)
    by_path = {file.path: vector for file, vector in zip(files, vectors, strict=True)}
    for number, positions in enumerate(deleted):
        assert by_path[f"part-{number:02d}.parquet"] == Bitmap(positions)


def test_only_the_vectors_of_files_that_are_read_are_loaded(tmp_path: Path) -> None:
    table = TableBuilder.made(
        tmp_path, fields={"id": "long", "p": "integer"}, partition_columns=["p"]
    )
    adds = [
        table.write_file(f"p={p}/part.parquet", {"id": [p, p + 10]}, {"p": str(p)})
        for p in range(4)
    ]
    table.add(*adds)
    for add in adds:
        table.delete_rows(add, [0])
    opened = delta.DeltaTable.for_path(None, tmp_path)
    opened.snapshot()
    kept = str(opened.snapshot().files.data_files()[2].descriptor.file_path)  # type: ignore[union-attr]
    for path in tmp_path.glob("*.bin"):
        if path.name != kept:
            path.unlink()
    wanted = opened.snapshot().files.data_files()[2].partition_values["p"]
    found = opened.to_arrow([("p", "=", int(wanted or -1))])
    assert found.column("id").to_pylist() == [int(wanted or -1) + 10]
    with pytest.raises(ObjectNotFoundError):
        opened.to_arrow()


def test_positions_of_row_groups_meet_the_vector(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    add = table.append(
        "part-0.parquet", {"id": list(range(1000))}, row_group_size=37, data_page_size=64
    )
    gone = [*range(30, 80), 500, 999]
    table.delete_rows(add, gone)
    opened = delta.DeltaTable.for_path(None, tmp_path)
    alive = np.setdiff1d(np.arange(1000), gone)
    assert ids_of(opened.to_arrow()) == alive.tolist()
    assert ids_of(opened.to_arrow([("id", ">=", 480), ("id", "<", 520)])) == [
        number for number in range(480, 520) if number != 500
    ]
