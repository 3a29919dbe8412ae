"""Which columns may be keys, and which files deletes by them are: those of keys, and vectors."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError, TruncatedError
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import FIELD_ID, arrow_schema, key_columns
from delvec.iceberg.deletes.key_vectors import (
    encode_key_vectors,
    least_vector_bytes,
    read_companion,
    read_key_vector,
    split_keys,
    vector_metrics,
)
from delvec.iceberg.deletes.write_keys import WrittenDeletes, write_deletes
from delvec.spark.input.key_values import KeyColumn, arrow_type
from delvec.spark.input.keys import Keys
from delvec.storage import Storage
from delvec.vector import Bitmap, puffin
from delvec.vector.blobs import EqualityDeleteVector
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


def files_in(root: Path) -> set[str]:
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
        assert len(files_in(other)) == 1

    @pytest.mark.parametrize("data", ["", "elsewhere"])
    def test_files_are_removed_unless_a_commit_follows(self, tmp_path: Path, data: str) -> None:
        root = tmp_path / "t"
        properties = {"write.delete.equality-vector.enabled": "true"}
        properties |= {"write.data.path": str(tmp_path / data)} if data else {}
        files = uncommitted(root)
        with files:
            table = loaded(root, properties=properties)
            write_deletes([1, -1], [column()], table, GLOBAL, staging=False, uncommitted=files)
            assert len(files_in(tmp_path)) == 3
        assert not files_in(tmp_path)


def struct_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


SCHEMA = struct_of(
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
            "value": struct_of(field(9, "x", "int")),
        },
    ),
    field(10, "s", struct_of(field(11, "a", "int", required=True), field(12, "t", struct_of()))),
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


KEYS = [3, 70_000, 5 << 33]


def stored(root: Path, data: bytes, keys: list[int] | None = None, **more: Any) -> Any:  # noqa: ANN401
    """A vector's file with the entry that a manifest has for these keys."""
    wanted = Keys.of(KEYS if keys is None else keys, [column()])
    metrics = vector_metrics(wanted)
    (root / "x-edv.puffin").write_bytes(data)
    entry = EqualityDeleteFile(
        f"file:{root}/x-edv.puffin",
        "parquet",
        2,
        "[]",
        (7,),
        len(wanted),
        len(data),
        1,
        {7: 0},
        {7: bytes.fromhex(metrics.lower or "")},
        {7: bytes.fromhex(metrics.upper or "")},
    )
    return replace(entry, **more)


def encoded(keys: list[int] | None = None, spec_id: int = 2) -> bytes:
    wanted = Keys.of(KEYS if keys is None else keys, [column()])
    return encode_key_vectors([wanted], spec_id).data


def read(root: Path, entry: EqualityDeleteFile) -> list[int]:
    found: list[int] = read_key_vector(Storage.open(root), entry).to_numpy().tolist()
    return found


@given(st.sets(st.integers(0, 2**63 - 1), min_size=1) | st.sets(st.integers(0, 300), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_come_back(tmp_path: Path, keys: set[int]) -> None:
    ordered = sorted(keys)
    assert read(tmp_path, stored(tmp_path, encoded(ordered), ordered)) == ordered


def test_a_large_vector_comes_back(tmp_path: Path) -> None:
    keys = np.random.default_rng(2).integers(0, 1 << 40, 20_000).tolist()
    data = encoded(keys)
    assert len(data) > 100_000  # the first read has the footer only
    assert read(tmp_path, stored(tmp_path, data, keys)) == sorted(keys)


@given(
    st.sets(st.integers(0, 2**63 - 1), min_size=1)
    | st.builds(range, st.integers(1, 10**6))
    | st.builds(lambda step: range(0, 10**7, step), st.integers(1000, 10**6))
)
def test_the_least_size_is_not_over_the_size(values: set[int] | range) -> None:
    keys = Keys.of(values, [column()])
    [blob] = encode_key_vectors([keys], 0).blobs
    assert least_vector_bytes(keys) <= blob.length


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_negative_values_and_null_are_split_off(values: list[int | None]) -> None:
    split = split_keys(Keys.of(values, [column()]))
    distinct = set(values)
    assert split.eligible.numbers.tolist() == sorted(
        v for v in distinct if v is not None and v >= 0
    )
    assert split.rest.numbers.tolist() == sorted(v for v in distinct if v is not None and v < 0)
    assert (split.nulls, len(split.eligible) + len(split.rest)) == (None in distinct, len(distinct))


def forged(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with another footer."""
    data = encoded()
    footer = puffin.read_footer(puffin.reader_of(data), len(data))
    begin = len(data) - footer.size
    content = json.loads(data[begin + 4 : -12])
    change(content)
    payload = json.dumps(content).encode()
    trailer = struct.pack("<i", len(payload)) + bytes(4) + b"PFA1"
    return data[: begin + 4] + payload + trailer


def blob(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["blobs"][0].update(changes)


def prop(name: str, value: str | None) -> Callable[[dict[str, Any]], None]:
    """Set a property of the blob, or take it away."""

    def change(content: dict[str, Any]) -> None:
        properties = content["blobs"][0]["properties"]
        del properties[name]
        properties |= {} if value is None else {name: value}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (blob(type="deletion-vector-v1"), "wrong type of the blob"),
        (blob(fields=[8]), "wrong fields of the blob"),
        (blob(fields=[7, 8]), "wrong fields of the blob"),
        (blob(**{"compression-codec": "zstd"}), "must not be compressed"),
        (blob(offset=5), "length field does not match|magic|outside"),
        (blob(length=10), "too short"),
        (blob(length=1 << 60), "outside the file"),
        (lambda c: c["blobs"].append(c["blobs"][0]), "wrong number of vectors"),
        (lambda c: c["blobs"].clear(), "wrong number of vectors"),
        (prop("equality-field-id", "8"), "wrong fields of the blob"),
        (prop("cardinality", "4"), "wrong number of values"),
        (prop("value-min", "2"), "wrong value-min"),
        (prop("value-max", "2"), "wrong value-max"),
        (prop("value-encoding", "zigzag"), "wrong value-encoding"),
        (prop("partition-spec-id", "3"), "wrong partition spec"),
        *(
            (prop(name, None), "lacks the property|wrong partition spec")
            for name in (
                "equality-field-id",
                "cardinality",
                "value-encoding",
                "value-min",
                "value-max",
                "partition-spec-id",
            )
        ),
    ],
)
def test_forged_footers_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = forged(change)
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path, stored(tmp_path, data))
    assert error.value.path == f"file:{tmp_path}/x-edv.puffin"


def of_positions() -> puffin.Blob:
    blob = EqualityDeleteVector(Bitmap(KEYS), 7, 2).to_blob()
    body = bytes.fromhex("d1d33964") + blob.data[8:-4]
    framed = struct.pack(">I", len(body)) + body + struct.pack(">I", crc32(body))
    return replace(blob, data=framed)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"equality_ids": (8,)}, "wrong key column"),
        ({"equality_ids": (7, 8)}, "wrong key column"),
        ({"record_count": 2}, "wrong number of keys"),
        ({"spec_id": 0}, "wrong partition spec"),
        ({"lower": {7: (2).to_bytes(8, "little")}}, "wrong bound of the keys"),
        ({"upper": {7: (2).to_bytes(8, "little")}}, "wrong bound of the keys"),
        ({"size": 1 << 62}, "ends beyond|truncated|shorter|bytes"),
        ({"size": 30}, "not a Puffin file"),
        ({"size": 3}, "too short for a Puffin file"),
        ({"blob": EqualityDeleteVector(Bitmap(), 7, 2).to_blob(), "record_count": 0}, "empty"),
        ({"blob": of_positions()}, "not a vector of this kind"),
    ],
)
def test_a_vector_that_is_not_what_the_manifest_says_is_refused(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    data = puffin.encode([entry.pop("blob")]).data if "blob" in entry else encoded()
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path, stored(tmp_path, data, **entry))
    assert "x-edv.puffin" in str(error.value)


def test_entries_without_bounds_and_bounds_from_before_a_promotion_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, stored(tmp_path, encoded(), lower={}, upper={})) == KEYS
    short = {7: (3).to_bytes(4, "little")}
    assert read(tmp_path, stored(tmp_path, encoded(), lower=short)) == KEYS


def test_damaged_truncated_and_missing_files_are_refused(tmp_path: Path) -> None:
    data = encoded()
    for place in range(4 + 58 + 4):  # header, blob, the footer's magic
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(FormatError):
            read(tmp_path, stored(tmp_path, bytes(damaged)))
    for end in range(len(data)):
        with pytest.raises(FormatError):
            read(tmp_path, stored(tmp_path, data[:end]))
    with pytest.raises(TruncatedError):
        read(tmp_path, stored(tmp_path, data[:-20], size=len(data)))
    with pytest.raises(ObjectNotFoundError, match=r"y-edv\.puffin"):
        read(tmp_path, stored(tmp_path, data, path=f"file:{tmp_path}/y-edv.puffin"))
