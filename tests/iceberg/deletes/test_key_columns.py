from __future__ import annotations

from typing import Any

import pytest

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.key_columns import FIELD_ID, arrow_schema, key_columns
from delvec.spark.input.key_values import KeyColumn
from tests.iceberg.deletes.foreign import column as field


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
