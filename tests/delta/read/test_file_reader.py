"""`delvec.delta.read.scan`: data files through their vectors, against a Python model."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delvec.delta.log.file_set import DataFile
from delvec.delta.read.conform import Conformer
from delvec.delta.read.footer_statistics import footer_bounds
from delvec.delta.read.scan import Scan, read_file, read_files
from delvec.delta.schema.traversal import with_children
from delvec.delta.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    arrow_type,
    children,
)
from delvec.delta.skipping import predicate as sql
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from delvec.storage import Storage
from delvec.vector import Bitmap, pack

UTC = dt.timezone.utc
LONG, STRING, DOUBLE = PrimitiveType("long"), PrimitiveType("string"), PrimitiveType("double")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(tmp_path / "table")


def struct(**types: DataType) -> StructType:
    return StructType(tuple(Field(name, kind) for name, kind in types.items()))


def put(storage: Storage, table: pa.Table, name: str = "f.parquet", **options: Any) -> DataFile:  # noqa: ANN401
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data = sink.getvalue().to_pybytes()
    storage.write(name, data)
    return DataFile(name, len(data), {}, None, table.num_rows, 0)


def table_of(
    storage: Storage,
    file: DataFile,
    scan: Scan,
    vector: Bitmap | None = None,
    row_groups: Sequence[int] | None = None,
) -> pa.Table:
    batches = list(read_file(storage, file, scan, vector=vector, row_groups=row_groups))
    assert all(batch.num_rows for batch in batches)
    table = pa.Table.from_batches(batches, scan.arrow_schema)
    table.validate(full=True)
    return table


def single(storage: Storage, array: pa.Array, kind: DataType, **options: Any) -> pa.Array:  # noqa: ANN401
    """Write a column and read it in the table's type."""
    file = put(storage, pa.table({"c": array}), **options)
    column = table_of(storage, file, Scan(struct(c=kind)))["c"].combine_chunks()
    assert column.type == arrow_type(kind)
    return column


ROWS = 1000
MODEL = [
    {
        "a": i * 7 % 100 if i % 11 else None,
        "s": f"{i % 37:02d}",
        "f": math.nan if i % 5 == 0 else i / 8,
    }
    for i in range(ROWS)
]
SCHEMA = struct(a=LONG, s=STRING, f=DOUBLE, p=LONG)
PREDICATES: list[tuple[sql.Predicate, Any]] = [
    (sql.Comparison(("a",), "<", 10), lambda row: row["a"] is not None and row["a"] < 10),
    (sql.Comparison(("f",), ">", 1e9), lambda row: math.isnan(row["f"])),
    (sql.Comparison(("p",), "=", 5), lambda _row: True),
    (sql.Comparison(("p",), "!=", 5), lambda _row: False),
    (sql.IsNull(("a",)), lambda row: row["a"] is None),
    (sql.StartsWith(("s",), "0"), lambda row: row["s"].startswith("0")),
    (
        sql.And((sql.Not(sql.IsNull(("a",))), sql.In(("s",), ("01", "36")))),
        lambda row: row["a"] is not None and row["s"] in ("01", "36"),
    ),
    (
        sql.Or((sql.Comparison(("a",), "=", 7), sql.Comparison(("f",), "<", 3.0))),
        lambda row: row["a"] == 7 or row["f"] < 3,
    ),
    (sql.Never(), lambda _row: False),
]


def comparable(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in row.items()]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_positions_and_columns_are_the_models(data: st.DataObject, tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    in_order = sorted(MODEL, key=lambda row: (row["a"] is None, row["a"] or 0))
    model = data.draw(st.sampled_from([MODEL, in_order]))
    file = put(
        storage,
        pa.Table.from_pylist(
            model, pa.schema([("s", pa.string()), ("a", pa.int64()), ("f", pa.float64())])
        ),
        row_group_size=data.draw(st.sampled_from([7, 64, 100, 333, 5000])),
        use_dictionary=data.draw(st.booleans()),
    )
    file = replace(file, partition_values={"p": "5"})
    marked = data.draw(
        st.sets(st.integers(0, ROWS - 1), max_size=40)
        | st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(lambda ends: set(range(*ends)))
    )
    predicate, test = data.draw(st.sampled_from([(None, None), *PREDICATES]))
    names = data.draw(st.lists(st.sampled_from(["a", "s", "f", "p"]), unique=True))
    scan = Scan(SCHEMA, ("p",), tuple(names), with_position=True, with_file=True)
    if predicate is not None:
        scan = replace(scan, predicate=predicate)
    expected = [
        {name: (row | {"p": 5})[name] for name in names}
        | {"_file": storage.uri_of("f.parquet"), "_pos": position}
        for position, row in enumerate(model)
        if position not in marked and (test is None or test(row))
    ]
    found = table_of(storage, file, scan, Bitmap(sorted(marked)) if marked else None)
    assert found.schema == scan.arrow_schema
    assert list(map(comparable, found.to_pylist())) == list(map(comparable, expected))
    bare = replace(scan, columns=(), with_file=False, with_position=False)
    batches = read_file(storage, file, bare, vector=Bitmap(sorted(marked)))
    assert sum(batch.num_rows for batch in batches) == len(expected)


def test_a_condition_that_is_not_understood_is_refused(storage: Storage) -> None:
    file = put(storage, pa.table({"a": [1]}))
    scan = Scan(struct(a=PrimitiveType("long")), predicate=sql.Unknown())
    with pytest.raises(InvalidArgumentError, match="cannot be evaluated"):
        list(read_file(storage, file, scan, vector=None))


def test_batches_are_bounded_and_large_files_keep_their_order(storage: Storage) -> None:
    rows = 300_000
    file = put(storage, pa.table({"a": np.arange(rows)}), row_group_size=200_000)
    scan = Scan(struct(a=LONG), predicate=sql.Comparison(("a",), "!=", 5), with_position=True)
    batches = list(read_file(storage, file, scan, vector=Bitmap(range(0, rows, 3))))
    assert max(batch.num_rows for batch in batches) <= 1 << 16
    table = pa.Table.from_batches(batches)
    kept = np.arange(rows)
    kept = kept[(kept % 3 != 0) & (kept != 5)]
    assert np.array_equal(table["_pos"].to_numpy(), kept)
    assert np.array_equal(table["a"].to_numpy(), kept)
    without = replace(scan, columns=())
    positions = pa.Table.from_batches(read_file(storage, file, without, vector=None))["_pos"]
    assert len(positions) == rows - 1


def test_row_groups_can_be_chosen(storage: Storage) -> None:
    file = put(storage, pa.table({"a": range(100)}), row_group_size=10)
    scan = Scan(struct(a=LONG), with_position=True)
    found = table_of(storage, file, scan, Bitmap([31, 90]), row_groups=[9, 3])
    assert found["_pos"].to_pylist() == [*range(91, 100), 30, *range(32, 40)]
    assert found["a"] == found["_pos"]
    with pytest.raises(InvalidArgumentError, match="has 10 row groups"):
        table_of(storage, file, scan, row_groups=[10])


def test_only_what_is_needed_is_read(storage: Storage) -> None:
    rng = np.random.default_rng(1)
    wide = pa.table(
        {name: rng.integers(0, 1 << 60, 100_000) for name in "abcdefgh"} | {"i": range(100_000)}
    )
    file = put(storage, wide, row_group_size=10_000, compression="none")
    schema = struct(**dict.fromkeys("abcdefghi", LONG))

    def cost(scan: Scan, vector: Bitmap | None = None) -> tuple[int, int]:
        before = storage.requests
        rows = table_of(storage, file, scan, vector).num_rows
        return rows, (storage.requests - before).bytes_read

    assert cost(Scan(schema))[1] > 7_000_000
    rows, read = cost(Scan(schema, columns=("a",)))
    assert (rows, read < 1_400_000) == (100_000, True)
    rows, read = cost(Scan(schema, columns=("a",), predicate=sql.Comparison(("i",), "<", 3)))
    assert (rows, read < 400_000) == (3, True)
    rows, read = cost(Scan(schema, columns=("a",)), Bitmap.from_ranges([0], [90_000]))
    assert (rows, read < 250_000) == (10_000, True)
    rows, read = cost(Scan(schema, columns=(), with_position=True))
    assert (rows, read < 70_000) == (100_000, True)
    file = put(storage, pa.table({"a": range(100)}))
    before = storage.requests
    assert cost(Scan(struct(a=LONG))) == (100, file.size)
    assert ((storage.requests - before).gets, (storage.requests - before).heads) == (1, 0)


def test_files_are_read_in_order_through_the_vectors_that_the_log_names(storage: Storage) -> None:
    vectors = [Bitmap([0, index]) for index in range(1, 4)]
    (vector_file,) = pack(vectors)
    vector_path = vector_file.descriptors[0].file_path
    assert vector_path is not None
    storage.write(vector_path, vector_file.data)
    files = [
        replace(put(storage, pa.table({"a": range(5)}), f"{index}.parquet"), descriptor=descriptor)
        for index, descriptor in enumerate([*vector_file.descriptors, None])
    ]
    scan = pickle.loads(pickle.dumps(Scan(struct(a=LONG), with_file=True)))  # noqa: S301
    found = pa.Table.from_batches(read_files(storage, files, scan)).to_pydict()
    assert found["a"] == [2, 3, 4, 1, 3, 4, 1, 2, 4, 0, 1, 2, 3, 4]
    assert [Path(name).name[0] for name in found["_file"]] == [*"00011122233333"]
    with pytest.raises(InvalidArgumentError, match="deletion vector, which was not passed"):
        table_of(storage, files[0], scan)


def test_an_absolute_path_is_followed_in_such_a_store(storage: Storage, tmp_path: Path) -> None:
    elsewhere = Storage.open(tmp_path / "source")
    file = put(elsewhere, pa.table({"a": [1]}), "d/x y%20.parquet")
    absolute = replace(file, path=elsewhere.uri_of(file.path))
    scan = Scan(struct(a=LONG), with_file=True)
    assert table_of(storage, absolute, scan).to_pylist() == [{"a": 1, "_file": absolute.path}]
    bucket = Storage.open("s3://lake/table", {"region": "x"})
    with pytest.raises(FormatError, match="s3://lake/table"):
        next(read_file(bucket, absolute, scan, vector=None))
    with pytest.raises(InvalidArgumentError, match="cannot be a key"):
        next(read_file(storage, replace(file, path="../source/x"), scan, vector=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"with_position": True}, "'_pos' would be there twice"),
        ({"columns": ("a", "A")}, "'a' would be there twice"),
        (
            {"columns": ("a",), "predicate": sql.IsNull(("_pos",)), "with_position": True},
            "'_pos' would be there twice",
        ),
        ({"columns": ("b",)}, "no column 'b'"),
    ],
)
def test_columns_of_a_scan_are_there_once(options: dict[str, Any], message: str) -> None:
    schema = struct(a=LONG, _pos=LONG)
    assert Scan(schema).arrow_schema.names == ["a", "_pos"]
    with pytest.raises(InvalidArgumentError, match=message):
        Scan(schema, **options)


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"no Parquet at all", b"PAR1" + bytes(50) + b"PAR1"]
)
def test_what_is_not_there_or_not_parquet_is_refused(storage: Storage, data: bytes) -> None:
    file = DataFile("x.parquet", len(data), {}, None, None, 0)
    with pytest.raises(ObjectNotFoundError, match=r"x\.parquet"):
        table_of(storage, file, Scan(SCHEMA))
    storage.write("x.parquet", data)
    with pytest.raises(FormatError, match=r"x\.parquet"):
        table_of(storage, file, Scan(SCHEMA))


def test_damaged_files_give_an_error_or_the_same_rows(storage: Storage) -> None:
    table = pa.table({"a": range(2000), "s": [str(i) for i in range(2000)], "f": [0.5] * 2000})
    file = put(storage, table, row_group_size=500, write_page_checksum=True)
    good = storage.read("f.parquet")
    pages = len(good) - 8 - int.from_bytes(good[-8:-4], "little")  # no checksums come after
    scan = Scan(struct(a=LONG, s=STRING, f=DOUBLE))
    expected = table_of(storage, file, scan)
    rng, refused = random.Random(7), 0
    for _ in range(300):
        bad = bytearray(good)
        if rng.random() < 0.2:
            del bad[rng.randrange(len(bad)) :]
        else:
            bad[rng.randrange(4, pages)] ^= 1 << rng.randrange(8)
        storage.write("bad.parquet", bytes(bad))
        try:
            found = table_of(storage, replace(file, path="bad.parquet", size=len(bad)), scan)
        except FormatError as error:
            assert "bad.parquet" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert found == expected
    assert refused > 200


def test_other_rows_than_the_log_counts_are_refused(storage: Storage) -> None:
    file = put(storage, pa.table({"a": range(10)}))
    scan = Scan(struct(a=LONG))
    with pytest.raises(FormatError, match=r"f\.parquet: expected 11 rows, found 10 rows"):
        table_of(storage, replace(file, row_count=11), scan)
    assert table_of(storage, replace(file, row_count=None), scan).num_rows == 10
    with pytest.raises(FormatError, match=r"f\.parquet: expected rows below 10, found row 10"):
        table_of(storage, file, scan, Bitmap([10]))


def test_columns_are_found_by_exact_name_then_without_case(storage: Storage) -> None:
    file = put(storage, pa.table({"A": [1], "a": [2], "B": [3], "x.y": [4], "x": [{"y": 5}]}))
    schema = struct(a=LONG, b=LONG, c=LONG, x=struct(Y=LONG, z=LONG)).fields
    scan = Scan(StructType((*schema, Field("x.y", LONG))))
    assert table_of(storage, file, scan).to_pylist() == [
        {"a": 2, "b": 3, "c": None, "x": {"Y": 5, "z": None}, "x.y": 4}
    ]
    assert table_of(storage, file, replace(scan, columns=("x.y",))).to_pylist() == [{"x.y": 4}]
    both = put(storage, pa.table({"bB": [1], "Bb": [2]}))
    with pytest.raises(FormatError, match=r"column bb is there more than once.*found bB, Bb"):
        table_of(storage, both, Scan(struct(bb=LONG)))


def test_column_mapping_by_name_and_by_id(storage: Storage) -> None:
    inner = StructType((Field("x", LONG, physical_name="c2", field_id=2),))
    columns: dict[str, Any] = {
        "s": (inner, "c1", 1),
        "l": (ArrayType(inner), "c3", 3),
        "new": (LONG, "c9", 9),
    }
    schema = StructType(
        tuple(
            Field(name, kind, physical_name=physical, field_id=number)
            for name, (kind, physical, number) in columns.items()
        )
    )

    def column(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    def stored(path: str, s: str, x: str, l: str) -> DataFile:  # noqa: E741
        leaf = pa.struct([column(x, pa.int64(), 2)])
        fields = [column(l, pa.list_(leaf), 3), column(s, leaf, 1)]
        return put(storage, pa.table([[[{x: 7}]], [{x: 8}]], schema=pa.schema(fields)), path)

    row = {"s": {"x": 8}, "l": [{"x": 7}], "new": None}
    by_name = stored("name.parquet", "c1", "c2", "c3")
    by_id = stored("id.parquet", "other", "names", "altogether")
    misleading = stored("odd.parquet", "c3", "c1", "c9")
    assert table_of(storage, by_name, Scan(schema, mapping_mode="name")).to_pylist() == [row]
    scan = Scan(schema, mapping_mode="id", predicate=sql.Comparison(("s", "x"), "=", 8))
    for file in (by_name, by_id, misleading):
        assert table_of(storage, file, scan).to_pylist() == [row]
    without = put(storage, pa.table({"c1": [{"c2": 1}]}))
    with pytest.raises(FormatError, match="by id, and the columns of the file have none"):
        table_of(storage, without, Scan(schema, mapping_mode="id"))


def test_partition_columns_are_constants_by_physical_name(storage: Storage) -> None:
    values = {"c1": "2024-03-31 02:30:00", "c2": None, "c3": "1.5"}
    file = replace(put(storage, pa.table({"a": [1, 2]})), partition_values=values)
    schema = StructType(
        (
            Field("t", PrimitiveType("timestamp"), physical_name="c1"),
            Field("a", LONG),
            Field("n", STRING, physical_name="c2"),
            Field("d", PrimitiveType("decimal(5,2)"), physical_name="c3"),
            Field("absent", LONG),
        )
    )
    scan = Scan(schema, ("t", "n", "d", "absent"), time_zone="Europe/Berlin")
    moment = dt.datetime(2024, 3, 31, 1, 30, tzinfo=UTC)
    row = {"t": moment, "n": None, "d": Decimal("1.50"), "absent": None}
    assert table_of(storage, file, scan).to_pylist() == [row | {"a": 1}, row | {"a": 2}]
    filtered = replace(scan, columns=("a",), predicate=sql.IsNull(("n",)))
    assert table_of(storage, file, filtered)["a"].to_pylist() == [1, 2]
    with pytest.raises(FormatError, match=r"f\.parquet.*expected a decimal\(5,2\), found '1,5'"):
        table_of(storage, replace(file, partition_values={"c3": "1,5"}), scan)


@pytest.mark.parametrize(
    ("stored", "kind", "expected"),
    [
        (pa.array([1, None], pa.int8()), "long", [1, None]),
        (pa.array([1], pa.int32()), "short", [1]),
        (pa.array([-5], pa.int32()), "double", [-5.0]),
        (pa.array([1.5], pa.float32()), "double", [1.5]),
        (pa.array([7], pa.int32()), "decimal(12,2)", [Decimal("7.00")]),
        (pa.array([7], pa.int64()), "decimal(20,0)", [Decimal(7)]),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), "decimal(10,3)", [Decimal("1.500")]),
        (pa.array([Decimal("1.5")], pa.decimal256(50, 1)), "decimal(10,1)", [Decimal("1.5")]),
        (pa.array([10], pa.date32()), "timestamp_ntz", [dt.datetime(1970, 1, 11)]),  # noqa: DTZ001
        (pa.array(["x"], pa.large_string()), "string", ["x"]),
        (pa.array(["x", None]).dictionary_encode(), "string", ["x", None]),
        (pa.array([b"x"]), "string", ["x"]),
        (pa.array([b"xy"], pa.binary(2)), "binary", [b"xy"]),
        (pa.array([None]), "integer", [None]),
        (
            pa.array([5], pa.timestamp("ms", "Europe/Berlin")),
            "timestamp",
            [dt.datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)],
        ),
        (pa.array([5], pa.timestamp("us")), "timestamp_ntz", [dt.datetime(1970, 1, 1, 0, 0, 0, 5)]),  # noqa: DTZ001
    ],
)
def test_other_forms_and_widened_types_are_cast(
    storage: Storage, stored: pa.Array, kind: str, expected: list[Any]
) -> None:
    assert single(storage, stored, PrimitiveType(kind)).to_pylist() == expected


INSTANT = pa.array([1], pa.timestamp("us", "UTC"))
REFUSED: dict[DataType, list[pa.Array]] = {
    PrimitiveType("byte"): [pa.array([300], pa.int32())],
    PrimitiveType("double"): [pa.array([1], pa.int64())],
    PrimitiveType("long"): [pa.array([1.5]), pa.array(["1"]), pa.array([[1]])],
    PrimitiveType("float"): [pa.array([1.5])],
    PrimitiveType("string"): [pa.array([1]), pa.array([b"\xff"])],
    PrimitiveType("timestamp_ntz"): [INSTANT],
    PrimitiveType("timestamp"): [pa.array([1], pa.timestamp("ns", "UTC"))],
    PrimitiveType("date"): [INSTANT],
    PrimitiveType("decimal(3,1)"): [pa.array([Decimal("1.55")])],
    PrimitiveType("boolean"): [pa.array([1], pa.int64())],
    **{kind: [pa.array([1])] for kind in (ArrayType(LONG), MapType(STRING, LONG), struct(x=LONG))},
}


@pytest.mark.parametrize(
    ("kind", "stored"), [(kind, each) for kind, arrays in REFUSED.items() for each in arrays]
)
def test_types_that_do_not_fit_fail(storage: Storage, kind: DataType, stored: pa.Array) -> None:
    with pytest.raises(FormatError, match=r"column c .*f\.parquet: expected .*, found "):
        single(storage, stored, kind)


def test_timestamps_of_spark_are_instants(storage: Storage) -> None:
    times = [0, -62_135_596_800_000_000, 253_402_300_799_999_999, None]
    if int(pa.__version__.partition(".")[0]) >= 23:
        times.append(-1)  # older ones write an instant before 1970 wrongly; all read it rightly
    options, stored = {"use_deprecated_int96_timestamps": True}, pa.array(times, pa.timestamp("us"))
    found = single(storage, stored, PrimitiveType("timestamp"), **options)
    assert found.cast(pa.int64()).to_pylist() == times


@pytest.mark.parametrize(
    ("key", "value", "legacy"),
    [("legacyDateTime", "", True), ("version", "2.4.5", True), ("version", "3.5.0", False)],
)
def test_old_calendars_are_refused(storage: Storage, key: str, value: str, *, legacy: bool) -> None:
    scan = Scan(struct(c=PrimitiveType("date")))
    for day in (dt.date(1600, 1, 1), dt.date(1500, 1, 1)):
        table = pa.table({"c": [day]}).replace_schema_metadata({f"org.apache.spark.{key}": value})
        file = put(storage, table)
        if legacy and day.year == 1500:
            with pytest.raises(UnsupportedFeatureError, match="calendar of Spark 2"):
                table_of(storage, file, scan)
        else:
            assert table_of(storage, file, scan)["c"].to_pylist() == [day]


def test_variants_are_given_as_stored_and_shredded_ones_are_refused(storage: Storage) -> None:
    variant = PrimitiveType("variant")
    plain = pa.array([{"metadata": b"m", "value": b"v"}, None])
    assert single(storage, plain, variant).to_pylist() == [{"value": b"v", "metadata": b"m"}, None]
    shredded = pa.array([{"metadata": b"m", "value": b"v", "typed_value": 1}])
    with pytest.raises(UnsupportedFeatureError, match="shredded variant in c"):
        single(storage, shredded, variant)
    with pytest.raises(FormatError, match="column c is stored as"):
        single(storage, pa.array([{"value": b"v"}]), variant)


def kinds() -> st.SearchStrategy[DataType]:
    leaves: st.SearchStrategy[DataType] = st.sampled_from([LONG, STRING, PrimitiveType("date")])
    return st.recursive(
        leaves,
        lambda inner: (
            inner.map(ArrayType)
            | inner.map(lambda value: MapType(STRING, value))
            | st.lists(inner, min_size=1, max_size=3).map(_numbered)
        ),
        max_leaves=5,
    )


def _numbered(types: list[DataType]) -> StructType:
    numbers = range(len(types))
    return StructType(tuple(Field(f"n{n}", types[n], physical_name=f"col-{n}") for n in numbers))


def values(kind: DataType) -> st.SearchStrategy[Any]:
    present: st.SearchStrategy[Any]
    if isinstance(kind, StructType):
        present = st.fixed_dictionaries({field.name: values(field.type) for field in kind.fields})
    elif isinstance(kind, ArrayType):
        present = st.lists(values(kind.element), max_size=3)
    elif isinstance(kind, MapType):
        present = st.dictionaries(st.text("ab", max_size=2), values(kind.value), max_size=3).map(
            lambda entries: list(entries.items())
        )
    else:
        present = {
            "long": st.integers(-(2**63), 2**63 - 1),
            "string": st.text("xyé", max_size=3),
            "date": st.dates(),
        }[str(kind)]
    return st.none() | present


def physical(kind: DataType) -> pa.DataType:
    """The type under physical names, with a dropped field beside the others."""
    if isinstance(kind, StructType):
        fields = [pa.field(f.physical_name, physical(f.type)) for f in kind.fields]
        return pa.struct([pa.field("dropped", pa.int64()), *reversed(fields)])
    if isinstance(kind, ArrayType):
        return pa.list_(physical(kind.element))
    if isinstance(kind, MapType):
        return pa.map_(physical(kind.key), physical(kind.value))
    return arrow_type(kind)


def grown(kind: DataType) -> DataType:
    """The type with a field more in every struct."""
    changed = with_children(
        kind, [replace(child, type=grown(child.type)) for child in children(kind)]
    )
    if isinstance(changed, StructType):
        return StructType((*changed.fields, Field("later", STRING)))
    return changed


def changed_structs(
    value: Any,  # noqa: ANN401
    kind: DataType,
    name: Callable[[Field], str],
    more: dict[str, Any],
) -> Any:  # noqa: ANN401
    """Change the value: other names of fields in every struct, and one field more."""
    inside = partial(changed_structs, name=name, more=more)
    match kind:
        case _ if value is None:
            return None
        case StructType():
            return {name(each): inside(value[each.name], each.type) for each in kind.fields} | more
        case ArrayType():
            return [inside(each, kind.element) for each in value]
        case MapType():
            return [(key, inside(each, kind.value)) for key, each in value]
    return value


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nested_values_survive_renaming_and_growth(data: st.DataObject, tmp_path: Path) -> None:
    kind = data.draw(kinds())
    rows = data.draw(st.lists(values(kind), min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start, len(rows)))

    def changed(name: Callable[[Field], str], **more: object) -> list[Any]:
        return [changed_structs(row, kind, name, more) for row in rows]

    stored = pa.array(changed(lambda field: field.physical_name, dropped=1), physical(kind))
    later = grown(kind)
    sliced = Conformer("x").conform(stored[start:stop], later, "c")
    sliced.validate(full=True)
    assert sliced.type == arrow_type(later)
    expected = changed(lambda field: field.name, later=None)
    assert sliced.to_pylist() == expected[start:stop]
    storage = Storage.open(tmp_path)
    file = put(storage, pa.table({"c": stored}), row_group_size=data.draw(st.integers(1, 5)))
    marked = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    found = table_of(storage, file, Scan(struct(c=later)), Bitmap(sorted(marked)))
    left = [row for position, row in enumerate(expected) if position not in marked]
    assert found["c"].to_pylist() == left


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (pa.array([[1], None, [2, 3]], pa.large_list(pa.int32())), ArrayType(LONG)),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), ArrayType(LONG)),
        (pa.array([{"x": 1}, None]), StructType((Field("x", LONG, nullable=False),))),
    ],
    ids=["large", "of fixed size", "required fields inside a null struct"],
)
def test_other_forms_of_nested_values_are_the_tables(stored: pa.Array, kind: DataType) -> None:
    found = Conformer("x").conform(stored, kind, "c")
    assert (found.type, found.to_pylist()) == (arrow_type(kind), stored.to_pylist())


def bounds(storage: Storage, table: pa.Table, schema: StructType, column: tuple[str, ...]) -> Any:  # noqa: ANN401
    put(storage, table, row_group_size=2)
    with storage.open_input("f.parquet") as source:
        parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        return footer_bounds(parquet, schema, by_id=False, path="f")(column)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("long", [3, 1, 2, None]),
        ("byte", [3, 1, 2, None]),
        ("boolean", [True, False, True, None]),
        ("string", ["é", "z", "", None]),
        ("binary", [b"\xff", b"\x01", b"a", None]),
        ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2020, 1, 1), None]),
        (
            "timestamp_ntz",
            [*map(dt.datetime.fromisoformat, ("2020-01-01", "0001-01-01", "0002-02-02")), None],
        ),
        ("decimal(5,2)", [Decimal("-1.25"), Decimal("3.00"), Decimal("0.00"), None]),
        ("decimal(38,2)", [Decimal("-1.25"), Decimal("3.00"), Decimal("0.00"), None]),
    ],
)
def test_footers_bound_values_of_one_type(storage: Storage, kind: str, rows: list[Any]) -> None:
    nested = struct(deep=struct(list=ArrayType(LONG), c=PrimitiveType(kind)))
    leaf = pa.array(rows, arrow_type(PrimitiveType(kind)))
    deep = pa.StructArray.from_arrays([pa.array([[1, 2]] * 4), leaf], ["list", "c"])
    found = bounds(storage, pa.table({"deep": deep}), nested, ("deep", "c"))
    first = sorted(rows[:2], key=lambda value: value.encode() if isinstance(value, str) else value)
    assert (found.minimum.type, found.minimum.to_pylist()) == (leaf.type, [first[0], rows[2]])
    assert found.maximum.to_pylist() == [first[1], rows[2]]
    assert (found.null_count.to_pylist(), found.row_count.to_pylist()) == ([0, None], [2, 2])
    assert bounds(storage, pa.table({"deep": deep}), nested, ("deep", "list")) is None


def test_footers_are_not_trusted_for_other_types(storage: Storage) -> None:
    rows = pa.table({"c": pa.array([1, 2], pa.int32())})
    assert bounds(storage, rows, struct(c=LONG), ("c",)) is None
    absent = bounds(storage, rows, struct(c=LONG, d=LONG), ("d",))
    assert absent.minimum is None
    assert absent.null_count.to_pylist() == absent.row_count.to_pylist() == [2]
    moments = pa.table({"c": pa.array([1, 2], pa.timestamp("ms", "UTC"))})
    assert bounds(storage, moments, struct(c=PrimitiveType("timestamp")), ("c",)) is None
    floats = bounds(storage, pa.table({"c": [math.nan, math.nan]}), struct(c=DOUBLE), ("c",))
    assert floats.minimum.to_pylist() == [None]
