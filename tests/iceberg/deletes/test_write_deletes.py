"""Which columns may be keys, and in which files deletes by them are written; no catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import FIELD_ID, arrow_schema, key_columns
from delvec.iceberg.deletes.key_vectors import read_companion, read_key_vector
from delvec.iceberg.deletes.write_keys import WrittenDeletes, write_deletes
from delvec.spark.input.key_values import KeyColumn, arrow_type
from delvec.spark.input.keys import Keys
from delvec.storage import Storage
from tests.iceberg.deletes.foreign import column as field
from tests.iceberg.deletes.key_tables import column, entries, listed, loaded, uncommitted

GLOBAL = Scope(0)


def write(
    root: Path,
    keys: Any,  # noqa: ANN401
    kind: str = "long",
    *,
    staging: bool = True,
    version: int = 3,
    properties: dict[str, str] | None = None,
    scope: Scope = GLOBAL,
) -> WrittenDeletes:
    columns = [column(kind)]
    table = loaded(root, version=version, properties=properties)
    files = uncommitted(root)
    with files:
        done = write_deletes(keys, columns, table, scope, staging=staging, uncommitted=files)
        files.keep()
    return done


def stored(root: Path) -> set[str]:
    return {str(each.relative_to(root)) for each in root.rglob("*") if each.is_file()}


def parquet_keys(entry: dict[str, Any]) -> list[Any]:
    path = entry["file-path"].removeprefix("file:")
    assert Path(path).stat().st_size == entry["file-size-in-bytes"]
    found: list[Any] = pq.read_table(path)["k"].to_pylist()
    assert len(found) == entry["record-count"]
    return found


class TestTheFormIsTheSmallerOne:
    @pytest.mark.parametrize(
        ("keys", "is_vector"),
        [
            (range(1_000_000), True),
            ([1, 10**9, 2 * 10**9], True),
            (range(0, 10_000_000, 10), False),  # Parquet stores one difference
            (np.random.default_rng(1).choice(10_000_000, 1_000_000, replace=False), False),
        ],
        ids=["sequential", "tiny and sparse", "one of ten", "random of ten"],
    )
    def test_measured_on_both(self, tmp_path: Path, keys: Any, is_vector: bool) -> None:  # noqa: ANN401, FBT001
        done = write(tmp_path, keys)
        [entry] = entries(done)
        assert entry["file-path"].endswith("-edv.puffin") == is_vector
        assert (done.vectors, done.files) == ((1, 0) if is_vector else (0, 1))
        assert done.needs_staging == is_vector
        size = done.vector_bytes if is_vector else done.file_bytes
        assert entry["file-size-in-bytes"] == size
        [form] = done.forms
        words = "a Parquet file of them takes" if is_vector else "a vector would take"
        assert words in form


class TestNotEligible:
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"properties": {}}, "enabled is not true"),
            ({"version": 2}, "format version 2, and vectors need 3"),
        ],
    )
    def test_keys_go_to_an_ordinary_file(
        self, tmp_path: Path, options: dict[str, Any], reason: str
    ) -> None:
        done = write(tmp_path, [1], **options)
        assert (done.files, done.vectors, done.needs_staging) == (1, 0, False)
        assert reason in done.forms[0]
        assert parquet_keys(entries(done)[0]) == [1]

    # The property is read ignoring case.
    @pytest.mark.parametrize("kind", ["int", "date", "timestamp", "timestamptz"])
    def test_other_types_that_count_are_eligible(self, tmp_path: Path, kind: str) -> None:
        raw = Keys.of([3, 4], [column("long" if kind.startswith("time") else "int")])
        values = raw.table.column(0).combine_chunks()
        enabled = {"write.delete.equality-vector.enabled": "TRUE"}
        done = write(tmp_path, values.view(arrow_type(kind)), kind, properties=enabled)
        [vector] = listed(done)
        assert read_key_vector(Storage.open(tmp_path), vector).to_numpy().tolist() == [3, 4]


class TestOtherBranches:
    def test_the_vector_is_in_the_statistics_file(self, tmp_path: Path) -> None:
        done = write(tmp_path, [4, 5, 6, -2], staging=False)
        assert not done.needs_staging
        assert sorted(len(parquet_keys(each)) for each in entries(done)) == [1, 3]
        statistics = done.statistics
        assert statistics is not None
        assert statistics.path.startswith(f"file:{tmp_path}/metadata/")
        assert statistics.path.endswith("-edv.puffin")
        [blob] = statistics.blobs
        assert (blob.type, blob.fields) == ("equality-delete-vector-v1", (7,))
        twin = next(each for each in listed(done) if each.path == blob.properties["delete-file"])
        storage = Storage.open(tmp_path)
        found = read_companion(storage, statistics.path, statistics.size, twin)
        assert found is not None
        assert found.to_numpy().tolist() == [4, 5, 6]
        other = next(each for each in listed(done) if each.path != twin.path)
        assert read_companion(storage, statistics.path, statistics.size, other) is None
        assert (done.files, done.vectors) == (2, 1)


class TestFiles:
    def test_the_manifest_entry_is_complete(self, tmp_path: Path) -> None:
        scope = Scope(3, '["a", 1.50]', "part a")
        [entry] = entries(write(tmp_path, [-1, None, 300], scope=scope, properties={}))
        path, size = entry.pop("file-path"), entry.pop("file-size-in-bytes")
        assert path.startswith(f"file:{tmp_path}/data/")
        assert size == Path(path.removeprefix("file:")).stat().st_size
        assert entry == {
            "spec-id": 3,
            "partition": ["a", 1.5],
            "content": "equality-deletes",
            "file-format": "parquet",
            "record-count": 3,
            "value-counts": {"keys": [7], "values": [3]},
            "null-value-counts": {"keys": [7], "values": [1]},
            "lower-bounds": {"keys": [7], "values": ["FFFFFFFFFFFFFFFF"]},
            "upper-bounds": {"keys": [7], "values": ["2C01000000000000"]},
            "equality-ids": [7],
            "sort-order-id": 0,
        }

    def test_vectors_are_labelled_parquet_and_have_the_same_bounds(self, tmp_path: Path) -> None:
        [vector] = entries(write(tmp_path, [1, 300]))
        assert vector["file-format"] == "parquet"
        names = ("value-counts", "null-value-counts", "lower-bounds", "upper-bounds")
        values = (2, 0, "0100000000000000", "2C01000000000000")
        expected = {
            name: {"keys": [7], "values": [each]} for name, each in zip(names, values, strict=True)
        }
        assert {name: vector[name] for name in names} == expected

    @pytest.mark.parametrize("inside", [True, False])
    def test_the_tables_own_data_path_is_used(self, tmp_path: Path, inside: bool) -> None:  # noqa: FBT001
        root, other = tmp_path / "t", tmp_path / ("t/files" if inside else "elsewhere")
        done = write(root, [1], properties={"write.data.path": f"file:{other}/"})
        [entry] = entries(done)
        assert entry["file-path"].startswith(f"file:{other}/")
        assert len(stored(other)) == 1

    @pytest.mark.parametrize("data", ["", "elsewhere"])
    def test_files_are_removed_unless_a_commit_follows(self, tmp_path: Path, data: str) -> None:
        root = tmp_path / "t"
        properties = {"write.delete.equality-vector.enabled": "true"}
        properties |= {"write.data.path": str(tmp_path / data)} if data else {}
        files = uncommitted(root)
        with files:
            table = loaded(root, properties=properties)
            write_deletes([1, -1], [column()], table, GLOBAL, staging=False, uncommitted=files)
            assert len(stored(tmp_path)) == 3
        assert not stored(tmp_path)


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


SCHEMA = struct(
    field(1, "id", "long", required=True),
    field(2, "Name", "string"),
    field(3, "price", "double"),
    field(4, "tags", {"type": "list", "element-id": 5, "element": "string"}),
    field(
        6,
        "m",
        {
            "type": "map",
            "key-id": 7,
            "key": "string",
            "value-id": 8,
            "value": struct(field(9, "x", "int")),
        },
    ),
    field(10, "s", struct(field(11, "a", "int", required=True), field(12, "t", struct()))),
    field(13, "v", "variant"),
    field(14, "g", "geometry(srid:4326)"),
    field(15, "dup", "int"),
    field(16, "DUP", "int"),
    field(17, "u", "unknown"),
)


def found(*names: str) -> tuple[KeyColumn, ...]:
    return key_columns(SCHEMA, names, "lake.db.t")


def test_columns_come_in_the_given_order() -> None:
    assert found("Name", "id") == (
        KeyColumn(2, "Name", "string", required=False),
        KeyColumn(1, "id", "long", required=True),
    )


def test_names_are_matched_exactly_else_ignoring_case() -> None:
    assert [each.id for each in found("ID", "name", "dup", "DUP")] == [1, 2, 15, 16]
    with pytest.raises(InvalidArgumentError, match=r"Dup is ambiguous: lake\.db\.t has dup, DUP"):
        found("Dup")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["idd"], "lake.db.t has no column idd\nHint: did you mean id?"),
        (["zzzzzz"], "has no column zzzzzz\nHint: its columns are id, Name, price"),
        (["price"], "column price of lake.db.t is double, which Iceberg allows in no key"),
        (["tags"], "is a list and cannot be in a key"),
        (["m"], "is a map and cannot be in a key"),
        (["s"], "is a struct and cannot be in a key"),
        (["s.a"], "s.a of lake.db.t is inside of a struct and cannot be in a key: Iceberg's"),
        (["S.t"], "is inside of a struct and cannot be in a key"),
        (["v"], "is variant and cannot be in a key"),
        (["g"], "is geometry"),
        (["u"], "is unknown and cannot be in a key"),
        (["tags.element"], "is inside of a list and cannot be in a key"),
        (["m.value.x"], "is inside of a map and cannot be in a key"),
        (["id", "Id"], "column id is named twice in a key of lake.db.t"),
        ([], "needs one column or more"),
        ("id", "needs one column or more"),
    ],
)
def test_other_columns_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        key_columns(SCHEMA, names, "lake.db.t")
    assert message in str(error.value)


def test_columns_of_files_are_nullable_where_the_tables_are() -> None:
    made = arrow_schema(found("Name", "id"))
    assert [each.nullable for each in made] == [True, False]
    assert [each.metadata[FIELD_ID.encode()] for each in made] == [b"2", b"1"]
