"""Field ids in Parquet footers: which files lack some, and footers with ids put in."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec import DeltaTable
from delvec.conversion.files.copies import files_to_copy
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.parquet.field_ids import FileSchema, add_ids, missing_ids, read_footer, read_schema
from delvec.storage import Storage
from tests.delta.builder import TableBuilder

Ids = dict[tuple[str, ...], int]


def ids_of(text: str) -> dict[tuple[str, ...], Any]:
    """Read `a=1 l.element=-`, in which a dash is no id."""
    pairs = (word.split("=") for word in text.split())
    return {tuple(path.split(".")): None if id_ == "-" else int(id_) for path, id_ in pairs}


def field(name: str, kind: pa.DataType, number: int | None = None) -> pa.Field:
    return pa.field(
        name, kind, metadata=None if number is None else {"PARQUET:field_id": str(number)}
    )


def list_of(kind: pa.DataType, number: int | None = None) -> pa.DataType:
    return pa.list_(field("element", kind, number))


def map_of(
    value: pa.DataType, key_id: int | None = None, value_id: int | None = None
) -> pa.DataType:
    key = field("key", pa.string(), key_id).with_nullable(False)
    return pa.map_(key, field("value", value, value_id))


def parquet(*fields: pa.Field, rows: list[dict[str, Any]] | None = None, **options: Any) -> bytes:  # noqa: ANN401
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows or [], pa.schema(fields)), sink, **options)
    return sink.getvalue()


def footer_of(file: bytes) -> bytes:
    return read_footer(lambda start, length: file[start : start + length], len(file), "f")


def schema_of(*fields: pa.Field) -> FileSchema:
    return read_schema(footer_of(parquet(*fields)), "f")


def with_ids(file: bytes, ids: Ids) -> bytes:
    footer = footer_of(file)
    schema = read_schema(footer, "f")
    new = add_ids(footer, schema, missing_ids(schema, ids, "f"))
    return file[: -8 - len(footer)] + new + len(new).to_bytes(4, "little") + b"PAR1"


def stored_ids(file: bytes) -> dict[tuple[str, ...], int | None]:
    """Read the ids by Arrow."""
    found: dict[tuple[str, ...], int | None] = {}

    def walk(each: pa.Field, path: tuple[str, ...]) -> None:
        text = (each.metadata or {}).get(b"PARQUET:field_id")
        found[path] = None if text is None else int(text)
        kind = each.type
        if pa.types.is_map(kind):
            walk(kind.key_field, (*path, "key"))
            walk(kind.item_field, (*path, "value"))
        elif pa.types.is_list(kind):
            walk(kind.value_field, (*path, "element"))
        elif pa.types.is_struct(kind):
            for child in kind:
                walk(child, (*path, child.name))

    for each in pq.read_metadata(io.BytesIO(file)).schema.to_arrow_schema():
        walk(each, (each.name,))
    return found


INT = pa.int32()
STRUCTS = list_of(pa.struct([field("x", INT, 2)]))
CASES: dict[str, tuple[list[pa.Field], bool, bool]] = {
    "no lists": ([field("a", INT, 1)], True, False),
    "no ids": ([field("l", list_of(INT)), field("m", map_of(INT))], False, False),
    "all ids": ([field("l", list_of(INT, 2), 1), field("m", map_of(INT, 4, 5), 3)], True, False),
    "no id of an element": ([field("l", list_of(INT), 1)], True, True),
    "no id of a key": ([field("m", map_of(INT, None, 5), 3)], True, True),
    "no id of a value": ([field("m", map_of(INT, 4, None), 3)], True, True),
    "an inner element": ([field("l", list_of(list_of(INT), 2), 1)], True, True),
    "an outer element": ([field("l", list_of(list_of(INT, 3)), 1)], True, True),
    "in a struct": ([field("s", pa.struct([field("l", list_of(INT), 2)]), 1)], True, True),
    "in a value": ([field("m", map_of(list_of(INT), 2, 3), 1)], True, True),
    "a struct as an element": ([field("l", STRUCTS, 1)], True, True),
    "ids of inner fields only": ([field("l", STRUCTS)], True, True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_lacks_ids_if_it_has_some_and_a_list_or_map_has_none(case: str) -> None:
    fields, has_ids, lacks = CASES[case]
    schema = schema_of(*fields)
    assert (schema.has_ids, schema.lacks_child_ids) == (has_ids, lacks)


NESTED = [
    field("id", pa.int64(), 1),
    field("l", list_of(INT), 2),
    field("m", map_of(list_of(pa.struct([field("x", INT, 5), field("y", pa.string(), 6)]))), 3),
    field("amount", pa.decimal128(9, 2), 4),
]
NESTED_IDS: Ids = ids_of(
    "id=1 l=2 l.element=7 m=3 m.key=63 m.value=64 m.value.element=2147483647"
    " m.value.element.x=5 m.value.element.y=6 amount=4"
)
ROWS = [
    {
        "id": number,
        "l": None if number % 5 == 0 else [number, None][: number % 3],
        "m": {"k": [{"x": number, "y": "y" * (number % 7)}], "none": None},
        "amount": None,
    }
    for number in range(100)
]


def test_ids_are_put_in_and_nothing_else_changes() -> None:
    options = {"row_group_size": 30, "compression": "zstd", "write_page_index": True}
    file = parquet(*NESTED, rows=ROWS, **options)
    copy = with_ids(file, NESTED_IDS)
    assert stored_ids(copy) == NESTED_IDS
    assert (
        pq.read_table(io.BytesIO(copy)).to_pylist() == pq.read_table(io.BytesIO(file)).to_pylist()
    )
    before, after = (pq.read_metadata(io.BytesIO(each)) for each in (file, copy))
    assert after.num_row_groups == 4
    for group in range(4):
        assert after.row_group(group).to_dict() == before.row_group(group).to_dict()
    assert (after.metadata, after.created_by) == (before.metadata, before.created_by)
    assert with_ids(copy, NESTED_IDS) == copy


LISTS = [field("gone", list_of(INT), 1), field("l", list_of(INT), 2)]
RENAMED = [field("a", pa.struct([field("b", list_of(INT), 2)]), 1)]
ADDED: dict[str, tuple[list[pa.Field], str, str]] = {
    "no id at all": ([field("l", list_of(INT))], "l=1 l.element=2", "l=- l.element=-"),
    "columns that the table has not": (
        *(LISTS, "l=2 l.element=3"),
        "gone=1 gone.element=- l=2 l.element=3",
    ),
    "other names, known by their ids": (
        *(RENAMED, "s=1 s.l=2 s.l.element=9"),
        "a=1 a.b=2 a.b.element=9",
    ),
    "fields of structs, by their names": (
        [field("a", INT, 1), field("s", pa.struct([field("x", INT)]))],
        *("a=1 s=2 s.x=3", "a=1 s=2 s.x=3"),
    ),
}


@pytest.mark.parametrize("case", ADDED)
def test_ids_are_those_of_the_table(case: str) -> None:
    fields, ids, expected = ADDED[case]
    assert stored_ids(with_ids(parquet(*fields), ids_of(ids))) == ids_of(expected)


@pytest.mark.parametrize(
    "fields",
    [
        [field("a", INT, 2), field("b", INT, 1)],
        [field("a", INT, 1), field("other", INT, 1)],
        [field("a", INT, 1), field("l", list_of(INT, 8), 3)],
    ],
    ids=["swapped", "twice", "element"],
)
def test_ids_that_are_not_the_table_s_are_refused(fields: list[pa.Field]) -> None:
    with pytest.raises(FormatError, match=r"another field id .* in part-1"):
        missing_ids(schema_of(*fields), ids_of("a=1 b=2 l=3 l.element=4"), "part-1")


# Footers by hand, for what Arrow does not write: (repetition, name, children, type, id), where the
# type is a converted one or, below zero, a logical one.
Node = tuple[int, str, int, int, int]


def footer_by_hand(*nodes: Node) -> bytes:
    def element(node: Node) -> bytes:
        repetition, name, children, kind, number = node
        converted, logical = max(kind, 0), max(-kind, 0)
        parts = bytes([0x35, repetition * 2, 0x18, len(name)]) + name.encode()
        parts += bytes([0x15, children * 2]) if children else b""
        parts += bytes([0x15 if children else 0x25, converted * 2]) if converted else b""
        after = 6 if converted else 5 if children else 4
        parts += bytes([(9 - after) << 4 | 5, number * 2]) if number else b""
        union = bytes([(1 if number else 10 - after) << 4 | 12, 12, logical * 2, 0, 0])
        return parts + (union if logical else b"") + b"\0"

    rest = bytes([0x16, 0, 0x19, 0x0C, 0])  # no rows, no row groups
    return bytes([0x15, 2, 0x19, len(nodes) << 4 | 12]) + b"".join(map(element, nodes)) + rest


OLD_LISTS = {
    "two levels": [(1, "l", 1, 3, 1), (2, "array", 0, 0, 0)],
    "three levels": [(1, "l", 1, 3, 1), (2, "bag", 1, 0, 0), (1, "array", 0, 0, 0)],
    "tuple": [(1, "l", 1, 3, 1), (2, "l_tuple", 1, 0, 0), (1, "x", 0, 0, 2)],
    "several": [(1, "l", 1, 3, 1), (2, "bag", 2, 0, 0), (1, "x", 0, 0, 2), (1, "y", 0, 0, 3)],
}


@pytest.mark.parametrize("form", OLD_LISTS)
def test_elements_are_found_in_lists_of_old_writers(form: str) -> None:
    nodes: list[Node] = [(0, "root", 1, 0, 0), *OLD_LISTS[form]]
    footer = footer_by_hand(*nodes)
    schema = read_schema(footer, "f")
    assert schema.lacks_child_ids
    ids = ids_of("l=1 l.element=5 l.element.x=2 l.element.y=3")
    element = 3 if form == "three levels" else 2
    nodes[element] = (*nodes[element][:4], 5)
    new = add_ids(footer, schema, missing_ids(schema, ids, "f"))
    assert new == footer_by_hand(*nodes)
    assert not read_schema(new, "f").lacks_child_ids


def test_lists_inside_a_variant_need_no_ids() -> None:
    inside: list[Node] = [(2, "list", 1, 0, 0), (1, "element", 0, 0, 0)]
    for kind, lacks in ((-16, False), (0, True)):
        shredded: list[Node] = [(1, "v", 1, kind, 1), (1, "typed_value", 1, -3, 0), *inside]
        schema = read_schema(footer_by_hand((0, "root", 1, 0, 0), *shredded), "f")
        assert schema.lacks_child_ids is lacks
        assert missing_ids(schema, {("v",): 1}, "f") == {}


def kinds(depth: int) -> st.SearchStrategy[Callable[[Any], pa.DataType]]:
    """Types with or without ids, made by a function that numbers what gets one."""
    leaves = st.sampled_from([pa.int32(), pa.string(), pa.decimal128(20, 3), pa.timestamp("us")])
    base = leaves.map(lambda kind: lambda _: kind)
    if not depth:
        return base
    inner = kinds(depth - 1)
    lists = inner.map(lambda make: lambda number: list_of(make(number), number()))
    maps = inner.map(lambda make: lambda number: map_of(make(number), number(), number()))
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda makes: (
            lambda number: pa.struct(
                [field(f"f{at}", make(number), number()) for at, make in enumerate(makes)]
            )
        )
    )
    return st.one_of(base, lists, maps, structs)


@given(st.lists(kinds(3), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_schema_gets_all_its_ids_and_reads_as_before(
    makes: list[Callable[[Any], pa.DataType]],
    random: Any,  # noqa: ANN401
) -> None:
    numbers = count(1, random.choice([1, 50, 700]))
    share = random.random()

    def number() -> int | None:
        taken = next(numbers)
        return taken if random.random() < share else None

    fields = [field(f"c{at}", make(number), number()) for at, make in enumerate(makes)]
    file = parquet(*fields)
    found = stored_ids(file)
    free = count(10_000_000)
    ids = {path: next(free) if each is None else each for path, each in found.items()}
    copy = with_ids(file, ids)
    has_ids = any(each is not None for each in found.values())
    assert stored_ids(copy) == (ids if has_ids else found)
    assert pq.read_table(io.BytesIO(copy)).schema.equals(pq.read_table(io.BytesIO(file)).schema)
    rests = [footer_of(each)[read_schema(footer_of(each), "f").end :] for each in (file, copy)]
    assert rests[0] == rests[1]


@given(st.data())
def test_damaged_footers_are_refused_or_read_but_never_crash(data: st.DataObject) -> None:
    footer = bytearray(footer_of(parquet(*NESTED)))
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(footer[: data.draw(st.integers(0, len(footer)))])
    try:
        schema = read_schema(cut, "part-1")
        missing_ids(schema, NESTED_IDS, "part-1")
    except FormatError as error:
        assert error.path == "part-1"  # noqa: PT017


def test_what_is_no_parquet_file_or_encrypted_is_refused_by_name() -> None:
    for file in (b"", b"PAR1", b"x" * 100, b"PAR1" + bytes(20) + b"\xff\xff\xff\x7fPAR1"):
        with pytest.raises(FormatError, match=r"not a Parquet file in f"):
            footer_of(file)
    with pytest.raises(UnsupportedFeatureError, match="f is an encrypted"):
        footer_of(bytes(96) + b"PARE")


def test_the_files_of_a_table_are_told_apart_by_their_footers(tmp_path: Path) -> None:
    identity = field("id", pa.int64(), 1)
    lacking = parquet(identity, field("l", list_of(INT), 2))
    wide = [field(f"column {number} {'x' * 100}", INT, 10 + number) for number in range(1000)]
    lacking_and_wide = parquet(identity, field("l", list_of(INT), 2), *wide)
    assert len(footer_of(lacking_and_wide)) > 1 << 16
    element: Any = {"type": "array", "elementType": "integer", "containsNull": True}
    builder = TableBuilder(tmp_path / "t", fields={"id": "long", "l": element})
    builder.create()
    written = [
        parquet(field("id", pa.int64()), field("l", list_of(INT))),
        lacking,
        parquet(identity, field("l", list_of(INT, 3), 2)),
        parquet(identity, field("l", list_of(INT), 2), rows=[{"id": 1, "l": [1]}]),
        lacking_and_wide,
        parquet(identity, field("l", list_of(INT, 3), 2), field("gone", list_of(INT), 7)),
    ]
    for number, data in enumerate(written):
        entry = builder.write_file(f"part-{number}.parquet", {"id": [number]})
        (builder.root / f"part-{number}.parquet").write_bytes(data)
        builder.commit({"add": {**entry, "size": len(data)}})
    files = DeltaTable.for_path(None, tmp_path / "t").snapshot().files
    by_path = np.argsort(files.paths.to_pylist())
    storage = Storage.open(tmp_path / "t")
    expected = [False, True, False, True, True]
    assert files_to_copy(storage, files)[by_path].tolist() == [*expected, True]
    assert storage.requests.gets == 7
    ids = ids_of("id=1 l=2 l.element=3")
    assert files_to_copy(storage, files, ids)[by_path].tolist() == [*expected, False]
    with pytest.raises(
        FormatError, match=r"element .* in .*part-[25]\.parquet: expected 4, found 3"
    ):
        files_to_copy(storage, files, {**ids, ("l", "element"): 4})
