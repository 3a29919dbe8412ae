"""Columns that are added at a place, changed where they are, and replaced: by Delta's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from delvec.delta.alter import columns, definition
from delvec.delta.alter.changed_columns import (
    ColumnChange,
    change_columns,
    described,
    replace_columns,
)
from delvec.delta.alter.columns import Place
from delvec.delta.alter.table_state import TableState
from delvec.delta.schema import traversal
from delvec.delta.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    children,
)
from delvec.errors import DelvecError, InvalidArgumentError

INT, LONG, TEXT = map(PrimitiveType, ("integer", "long", "string"))
OFF = {"delta.enableDeletionVectors": "false"}
MAPPED = {"delta.columnMapping.mode": "name"}
WIDENS = {"delta.enableTypeWidening": "true"}
DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}
PARTS = StructType((Field("x", INT), Field("y", TEXT)))
COLUMNS = StructType(
    (
        Field("id", INT, nullable=False),
        Field("s", PARTS),
        Field("a", ArrayType(INT)),
        Field("m", MapType(TEXT, PARTS)),
        Field("v", TEXT, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
    )
)


def table(schema: StructType = COLUMNS, properties: Mapping[str, str] = OFF) -> TableState:
    return definition.new_table(schema, properties={**OFF, **properties})


def of(kind: DataType, **metadata: str) -> Field:
    return Field("c", kind, metadata=metadata)


def changed(state: TableState, path: str, **parts: Any) -> TableState:  # noqa: ANN401
    return change_columns(state, [ColumnChange(tuple(path.split(".")), **parts)])


@pytest.mark.parametrize(
    ("name", "place", "names"),
    [
        ("n", Place(), ["n", "id", "s", "a", "m", "v"]),
        ("n", Place("S"), ["id", "s", "n", "a", "m", "v"]),
        ("n", Place("v"), ["id", "s", "a", "m", "v", "n"]),
        ("n", None, ["id", "s", "a", "m", "v", "n"]),
        ("s.n", Place(), ["n", "x", "y"]),
        ("m.value.n", Place("x"), ["x", "n", "y"]),
    ],
)
def test_columns_are_added_at_their_place(name: str, place: Place | None, names: list[str]) -> None:
    state = columns.add_columns(table(), [Field(name, LONG)], [place])
    parents = traversal.resolve(state.schema, name.split(".")[:-1])
    struct = parents[-1].type if parents else state.schema
    assert [each.name for each in children(struct)] == names


@pytest.mark.parametrize(
    ("path", "place", "names"),
    [
        ("a", Place(), ["a", "id", "s", "m", "v"]),
        ("id", Place("m"), ["s", "a", "m", "id", "v"]),
        ("id", Place("id"), ["id", "s", "a", "m", "v"]),
        ("v", Place("ID"), ["id", "v", "s", "a", "m"]),
    ],
)
def test_columns_are_moved(path: str, place: Place, names: list[str]) -> None:
    assert list(changed(table(), path, place=place).schema.names) == names


def test_fields_of_structs_are_moved_and_keep_what_maps_them() -> None:
    state = table(properties=MAPPED)
    moved = changed(state, "s.y", place=Place())
    was, now = (each.schema.field("s").type for each in (state, moved))
    assert isinstance(was, StructType)
    assert isinstance(now, StructType)
    assert now.fields == was.fields[::-1]


def test_types_become_wider_where_the_table_allows_it() -> None:
    state = table(properties=WIDENS)
    change = {"toType": "long", "fromType": "integer"}
    wider = changed(state, "id", kind=of(LONG)).schema.field("id")
    assert (wider.type, wider.nullable) == (LONG, False)
    assert wider.metadata["delta.typeChanges"] == [change]
    items = changed(state, "a.element", kind=of(LONG)).schema.field("a")
    assert items.type == ArrayType(LONG)
    assert items.metadata["delta.typeChanges"] == [{**change, "fieldPath": "element"}]
    inner = changed(state, "m.value.x", kind=of(LONG)).schema.field("m")
    assert not inner.metadata
    assert isinstance(inner.type, MapType)
    assert isinstance(inner.type.value, StructType)
    assert inner.type.value.fields[0].metadata["delta.typeChanges"] == [change]


def test_comment_length_nullability_and_default_change_at_once() -> None:
    state = table(properties=DEFAULTS)
    given = [
        ColumnChange(("id",), comment="the key", nullable=True, default="7", place=Place("v")),
        ColumnChange(("v",), kind=of(TEXT, __CHAR_VARCHAR_TYPE_STRING="varchar(9)")),
    ]
    state = change_columns(state, given)
    assert state.schema.names == ("s", "a", "m", "v", "id")
    key = state.schema.field("id")
    assert (key.nullable, key.metadata) == (True, {"comment": "the key", "CURRENT_DEFAULT": "7"})
    assert state.schema.field("v").metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(9)"}
    assert described(state, ["id"], Place("v")) == {
        "column": {
            "name": "id",
            "type": "integer",
            "nullable": True,
            "metadata": {"comment": "the key", "CURRENT_DEFAULT": "7"},
        },
        "position": "AFTER v",
    }
    assert changed(state, "id", default="").schema.field("id").metadata == {"comment": "the key"}
    assert not changed(state, "v", kind=of(TEXT)).schema.field("v").metadata


def test_a_change_to_what_is_there_is_none() -> None:
    state = table()
    assert changed(state, "id", kind=of(INT), nullable=False) == state
    assert changed(state, "s", kind=of(PARTS)) == state


@pytest.mark.parametrize(
    ("path", "parts", "told"),
    [
        ("id", {"kind": of(LONG)}, r"is integer, and cannot become long\nHint: let types become"),
        ("id", {"kind": of(TEXT)}, "is integer, and cannot become string$"),
        ("s", {"kind": of(TEXT)}, r"cannot become string\nHint: change its parts"),
        ("v", {"nullable": False}, "cannot become NOT NULL"),
        ("id", {"default": "7"}, r"lacks the feature allowColumnDefaults\nHint: add_feature"),
        ("a.element", {"comment": "x"}, "has no comment or default"),
        ("a.element", {"nullable": False}, "whether it may be null is fixed"),
        ("a.element", {"place": Place()}, "has no place"),
        ("id", {"place": Place("nix")}, "there is no column 'nix'"),
        ("nix", {"comment": "x"}, "there is no column 'nix'"),
    ],
)
def test_what_delta_does_not_allow_is_refused(path: str, parts: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        changed(table(), path, **parts)


def test_identity_and_dependent_columns_keep_their_types() -> None:
    made = {"delta.identity.start": 1, "delta.identity.step": 1}
    schema = StructType((Field("i", LONG, metadata=made), Field("n", INT)))
    state = table(schema, WIDENS)
    assert changed(state, "i", comment="x", place=Place("n")).schema.names == ("n", "i")
    with pytest.raises(InvalidArgumentError, match="i is an identity column"):
        changed(state, "i", nullable=False)
    with pytest.raises(InvalidArgumentError, match="i is an identity column"):
        replace_columns(state, schema.fields)
    state = definition.add_constraint(state, "c", "n > 0")
    with pytest.raises(InvalidArgumentError, match="constraint c names it"):
        changed(state, "n", kind=of(LONG))


def test_columns_are_replaced_by_name() -> None:
    by_name = {each.name: each for each in COLUMNS.fields}
    wanted = [
        replace(by_name["v"], metadata={**by_name["v"].metadata, "comment": "text"}),
        Field("n", LONG),
        replace(by_name["id"], nullable=True),
        *(by_name[name] for name in ("s", "a", "m")),
    ]
    state = replace_columns(table(), wanted)
    assert state.schema.names == ("v", "n", "id", "s", "a", "m")
    assert state.schema.field("v").metadata["comment"] == "text"
    assert state.schema.field("id").nullable
    mapped = table(properties=MAPPED)
    kept = replace_columns(mapped, COLUMNS.fields[:2]).schema
    assert kept.names == ("id", "s")
    assert kept.field("id").physical_name == mapped.schema.field("id").physical_name


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: replace_columns(state, COLUMNS.fields[1:]), "know their columns by name"),
        (
            lambda state: replace_columns(state, (*COLUMNS.fields[1:], Field("n", LONG))),
            "whether they are renamed is not said",
        ),
        (
            lambda state: replace_columns(state, (of(LONG), *COLUMNS.fields, of(LONG))),
            "there is a column 'c' already",
        ),
    ],
)
def test_columns_are_not_replaced_by_guesses(
    change: Callable[[TableState], TableState], told: str
) -> None:
    with pytest.raises(DelvecError, match=told):
        change(table())


def test_properties_bring_features_of_readers_only_if_asked() -> None:
    state = table()
    with pytest.raises(InvalidArgumentError, match="this needs the table feature typeWidening"):
        definition.set_properties(state, WIDENS)
    wider = definition.set_properties(state, WIDENS, for_readers=True)
    assert wider.protocol.reader_features == {"typeWidening"}
