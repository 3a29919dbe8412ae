"""The schema of a target: ids, types and names in files, and what cannot follow a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from delvec.conversion.schema.evolution import (
    compatible_schema,
    require_evolution,
    require_partition_types,
    wider_columns,
)
from delvec.conversion.schema.iceberg_schema import (
    FIRST_OWN_ID,
    TargetSchema,
    full_name,
    target_schema,
    walk_iceberg,
)
from delvec.conversion.schema.partition_spec import partition_spec
from delvec.delta.schema.metadata import Metadata
from delvec.errors import FormatError, UnsupportedFeatureError
from tests.conversion.schema.columns import Json, array, column, mapped, metadata_of, of_map, struct

OWN = FIRST_OWN_ID


def converted(metadata: Metadata, before: TargetSchema | None = None) -> TargetSchema:
    return target_schema(
        metadata,
        table="db.t",
        format_version=3,
        current=before.to_json() if before else None,
        last_column_id=before.last_column_id if before else 0,
    )


def plain(before: TargetSchema | None = None, /, **kinds: Any) -> TargetSchema:  # noqa: ANN401
    """Convert columns without a mapping, by their names and types."""
    return converted(metadata_of(*(column(*each) for each in kinds.items())), before)


def by_id(*columns: Json, before: TargetSchema | None = None, mode: str = "name") -> TargetSchema:
    return converted(metadata_of(*columns, mode=mode), before)


def ids(schema: TargetSchema) -> str:
    return " ".join(f"{full_name(path)}={path[-1].id}" for path in walk_iceberg(schema.fields))


def names_in_files(mapping: Iterable[Mapping[str, Any]], above: str = "") -> str:
    found = []
    for entry in mapping:
        [name] = entry["names"]
        found.append(f"{above}{name}={entry['field-id']}")
        found += names_in_files(entry.get("fields", ()), f"{above}{name}.").split()
    return " ".join(found)


def refused(metadata: Metadata) -> str:
    with pytest.raises(UnsupportedFeatureError) as caught:
        converted(metadata)
    assert caught.value.needed_by == "db.t"
    assert caught.value.hint
    return str(caught.value)


EVERY_TYPE = {
    **{name: name for name in ("string", "long", "float", "double", "boolean", "binary", "date")},
    "integer": "int",
    "short": "int",
    "byte": "int",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "decimal(10,2)": "decimal(10, 2)",
}
NESTED = (
    column("a", "long", {"comment": "the key"}, nullable=False),
    column("s", struct(column("x", "integer"), column("y", "string", nullable=False))),
    column("l", array(struct(column("p", array("integer"))))),
    column("m", of_map("string", array("long"))),
)
# By Iceberg's own parser: `test_with_iceberg.py`.
NESTED_FIELDS = """
    1 a! long the key
    2 s struct<x: int, y: string>
    3 s.x int
    4 s.y! string
    5 l list<element: struct<p: list<element: int>>>
    6 l.element struct<p: list<element: int>>
    7 l.element.p list<element: int>
    8 l.element.p.element int
    9 m map<key: string, value: list<element: long>>
    10 m.key! string
    11 m.value list<element: long>
    12 m.value.element long
"""


def test_every_type_has_its_counterpart() -> None:
    schema = plain(**{f"c_{kind}": kind for kind in EVERY_TYPE})
    assert [field.type for field in schema.fields] == list(EVERY_TYPE.values())


def test_nested_columns_have_ids_nullability_and_comments() -> None:
    found = [
        f"{path[-1].id} {full_name(path)}{'!' * path[-1].required} {path[-1].type}"
        f" {path[-1].doc or ''}".strip()
        for path in walk_iceberg(converted(metadata_of(*NESTED)).fields)
    ]
    assert found == [line.strip() for line in NESTED_FIELDS.strip().splitlines()]


def test_not_null_inside_of_lists_and_maps_is_not_trusted() -> None:
    inner = struct(column("x", "long", nullable=False))
    schema = plain(l=array(inner, contains_null=False), m=of_map("long", inner))
    paths = walk_iceberg(schema.fields)
    assert [full_name(path) for path in paths if path[-1].required] == ["m.key"]


# Without column mapping.


def test_ids_are_kept_by_name_and_new_ones_come_after_all_that_were_ever_used() -> None:
    before = plain(a="long", l=array("long"))
    assert ids(before) == "a=1 l=2 l.element=3"
    after = plain(plain(before, l=array("long")), b="long", l=array("long"), a="long")
    assert ids(after) == "b=4 l=2 l.element=3 a=5"
    assert after.last_column_id == 5
    assert ids(plain(before, A="long")) == "A=4"
    # A type that cannot be promoted keeps its id; what is inside gets others.
    after = plain(plain(a="integer", b=struct(column("x", "date"))), a="long", b=array("string"))
    assert ids(after) == "a=1 b=2 b.element=4"


def test_the_same_table_gives_the_same_schema() -> None:
    before = converted(metadata_of(*NESTED))
    after = converted(metadata_of(*NESTED), before)
    assert after.to_json() == before.to_json()
    assert after.is_same_as(before.to_json() | {"schema-id": 7})
    assert not after.is_same_as(converted(metadata_of(*NESTED[:2])).to_json())
    assert after.nested_without_ids == ()


def test_names_in_files_are_mapped_at_all_depths() -> None:
    found = names_in_files(converted(metadata_of(*NESTED[2:])).name_mapping())
    lists = "l=1 l.element=2 l.element.p=3 l.element.p.element=4"
    assert found == f"{lists} m=5 m.key=6 m.value=7 m.value.element=8"


def test_columns_that_are_no_more_stay_mapped_for_older_snapshots() -> None:
    before = plain(a="long", b=struct(column("x", "long")))
    after = plain(before, b=struct(column("y", "long")))
    assert names_in_files(after.name_mapping(before.name_mapping())) == "b=2 b.y=4 b.x=3 a=1"
    again = plain(after, a="string")
    assert [entry["field-id"] for entry in again.name_mapping(before.name_mapping())] == [5, 2]


# With column mapping.


def test_ids_are_those_of_delta_at_all_depths() -> None:
    schema = by_id(
        mapped(7, "a", "long"),
        mapped(3, "s", struct(mapped(9, "x", "long"))),
        mapped(4, "l", array(struct(mapped(11, "y", "long")))),
    )
    assert ids(schema) == f"a=7 s=3 s.x=9 l=4 l.element={OWN} l.element.y=11"
    assert schema.name_mapping()[0] == {"field-id": 7, "names": ["col-7"]}
    assert schema.nested_without_ids == ()


def test_nested_ids_of_delta_are_taken() -> None:
    inner = struct(mapped(4, "x", array("long"), None, {"element": 107}))
    elements = {"element": 100, "element.element": 101}
    schema = by_id(
        mapped(1, "c", array(array("integer")), "p.q", elements),
        mapped(2, "m", of_map("integer", array("long")), None, {"key": 102, "value": 103}),
        mapped(3, "n", of_map("long", inner), None, {"key": 105, "value": 106}),
        mode="id",
    )
    assert ids(schema) == (
        f"c=1 c.element=100 c.element.element=101 m=2 m.key=102 m.value=103 m.value.element={OWN}"
        " n=3 n.key=105 n.value=106 n.value.x=4 n.value.x.element=107"
    )
    assert schema.nested_without_ids == ("m.value",)


def test_columns_that_files_have_no_ids_for_are_told() -> None:
    schema = by_id(
        mapped(1, "numbers", array("long")),
        mapped(2, "structs", array(struct(mapped(3, "x", "long")))),
        mapped(4, "named", of_map("string", struct(mapped(5, "x", array("long"))))),
        mapped(6, "plain", of_map("string", "long")),
        mapped(7, "deep", struct(mapped(8, "lists", array(array("long"))))),
    )
    found = " ".join(schema.nested_without_ids)
    assert found == "numbers named.value.x plain deep.lists deep.lists.element"


def test_own_ids_are_kept_when_the_column_is_renamed_and_not_when_it_is_made_anew() -> None:
    renamed = by_id(mapped(1, "k", array("long")), before=by_id(mapped(1, "l", array("long"))))
    assert ids(renamed) == f"k=1 k.element={OWN}"
    again = by_id(mapped(2, "k", array("long")), before=renamed)
    assert ids(again) == f"k=2 k.element={OWN + 1}"


def test_ids_that_delta_gives_out_later_never_meet_our_own() -> None:
    lists = [mapped(number, f"l{number}", array("long")) for number in (1, 2, 3)]
    start = metadata_of(lists[0], mode="name", delta__columnMapping__maxColumnId="1")
    schema = by_id(*lists, before=by_id(*lists[:2], before=converted(start)))
    found = [path[-1].id for path in walk_iceberg(schema.fields)]
    assert sorted(found) == [1, 2, 3, *range(OWN, OWN + 3)]


def test_an_id_of_ours_from_before_the_mapping_is_given_up() -> None:
    before = plain(l=array("long"), b="long")
    after = by_id(mapped(1, "l", array("long"), "l"), mapped(2, "b", "long", "b"), before=before)
    assert ids(before) == "l=1 l.element=2 b=3"
    assert ids(after) == f"l=1 l.element={OWN} b=2"


def test_an_id_that_is_out_of_range_or_comes_twice_is_refused() -> None:
    for number in (0, -1, OWN, 2**31 - 2):
        with pytest.raises(FormatError, match=r"'a' of db\.t"):
            by_id(mapped(number, "a", "long"), mode="id")
    with pytest.raises(FormatError, match="another than that of 'a'"):
        by_id(mapped(1, "a", "long"), mapped(2, "s", struct(mapped(1, "x", "long"))), mode="id")


# What is refused.


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("variant", {}, "variant"),
        ("void", {}, "no type"),
        ("interval day to second", {}, "interval day to second"),
        ("geometry(4326)", {}, "geometry"),
        (array("variant"), {}, "variant"),
        ("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}, "char(5)"),
        ("string", {"__COLLATIONS": {"c": "icu.UNICODE_CI"}}, "icu.UNICODE_CI"),
    ],
)
def test_columns_that_would_read_wrong_are_refused(kind: Any, more: Any, expected: str) -> None:  # noqa: ANN401
    text = refused(metadata_of(column("ok", "long"), column("c", kind, more)))
    assert all(word in text for word in ("db.t", "'c'", expected))


def test_columns_that_would_read_wrong_are_found_inside_of_others() -> None:
    inner = struct(column("x", of_map("string", "variant")))
    assert "'l.element.x'" in refused(metadata_of(column("l", array(inner))))


def test_a_text_with_a_longest_length_is_a_text() -> None:
    kind = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    assert converted(metadata_of(column("c", "string", kind))).fields[0].type == "string"


def test_names_that_iceberg_has_itself_or_cannot_tell_apart_are_refused() -> None:
    for name in ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_FILE"):
        assert name in refused(metadata_of(column(name, "long")))
        plain(s=struct(column(name, "long")))
    for other in (
        (column("a", "long"), column("A", "long")),
        (column("a.b", "long"), column("a", struct(column("b", "long")))),
        (column("l.element", "long"), column("l", array("long"))),
    ):
        assert "cannot tell it from" in refused(metadata_of(*other))


def test_types_that_were_widened_as_iceberg_does_it_are_fine() -> None:
    for before, after, kind in (
        *(("byte", "short", "short"), ("byte", "integer", "integer"), ("byte", "long", "long")),
        *(("integer", "long", "long"), ("float", "double", "double")),
        ("decimal(6, 2)", "decimal(10,2)", "decimal(10,2)"),
    ):
        changes = {"delta.typeChanges": [{"fromType": before, "toType": after}]}
        converted(metadata_of(column("c", kind, changes)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("integer", "double"),
        ("short", "double"),
        ("integer", "decimal(10,0)"),
        ("long", "decimal(20,0)"),
        ("date", "timestamp_ntz"),
        ("decimal(6,2)", "decimal(10,4)"),
    ],
)
def test_types_that_were_widened_otherwise_are_refused(before: str, after: str) -> None:
    change = {"fromType": before, "toType": after}
    text = refused(metadata_of(column("c", after, {"delta.typeChanges": [change]})))
    assert f"changed from {before} to {after}" in text
    assert "DROP FEATURE typeWidening" in text
    inside = {"delta.typeChanges": [change | {"fieldPath": "element.value"}]}
    nested = metadata_of(column("c", array(of_map("string", after)), inside))
    assert "'c.element.value'" in refused(nested)


def test_the_first_version_of_the_format_is_refused() -> None:
    metadata: dict[str, Any] = {"current": None, "last_column_id": 0, "format_version": 1}
    with pytest.raises(UnsupportedFeatureError, match="version 1"):
        target_schema(metadata_of(column("a", "long")), table="db.t", **metadata)


# What a target can follow.


def follow(before: TargetSchema, after: TargetSchema, refusal: str | None = None) -> None:
    if refusal is None:
        require_evolution(before.to_json(), after, "db.t", before.name_mapping())
        return
    with pytest.raises(UnsupportedFeatureError, match=refusal):
        follow(before, after)


def test_columns_are_added_dropped_renamed_and_widened() -> None:
    old = mapped(3, "s", struct(mapped(4, "x", "float")))
    new = mapped(3, "s", struct(mapped(4, "x", "double"), mapped(5, "y", "string")))
    before = by_id(mapped(1, "a", "integer"), mapped(2, "b", "long"), old)
    follow(before, by_id(mapped(2, "a", "long"), mapped(1, "b", "long"), new, before=before))
    follow(before, by_id(old, before=before))


def test_a_type_that_is_no_promotion_is_refused() -> None:
    before, unmapped = by_id(mapped(1, "a", "string")), plain(a="string")
    for old, new in (
        (before, by_id(mapped(1, "a", "long"), before=before)),
        (unmapped, plain(unmapped, a="long")),
    ):
        follow(old, new, "it was string and is long now")


def test_nulls_cannot_be_forbidden_while_files_have_them() -> None:
    before, strict = plain(a="long"), metadata_of(column("a", "long", nullable=False))
    follow(before, converted(strict, before), "it had nulls")
    more = metadata_of(column("a", "long"), column("b", "long", nullable=False))
    follow(before, converted(more, before), "do not have it")
    follow(before, plain(before, a="long", s=struct(column("x", "long", nullable=False))))


def test_types_are_not_narrowed_and_nulls_not_forbidden_again() -> None:
    """As by a RESTORE of the source to before it widened its columns."""
    wide = struct(column("f", "double"), column("d", "decimal(9,2)"))
    before = plain(id="long", s=wide, m=of_map("string", "long"), key="long")
    narrow = metadata_of(
        column("id", "integer", nullable=False),
        column("s", struct(column("f", "float"), column("d", "decimal(5,2)"))),
        column("m", of_map("string", "integer")),
        column("key", "string"),
        column("x", struct(column("y", "long", nullable=False)), nullable=False),
    )
    exact = converted(narrow, before)
    kept = compatible_schema(before.to_json(), exact)
    found = {
        full_name(path): f"{path[-1].type}{'!' * path[-1].required}"
        for path in walk_iceberg(kept.fields)
    }
    assert {name: kind for name, kind in found.items() if "<" not in kind} == {
        "id": "long",
        "s.f": "double",
        "s.d": "decimal(9, 2)",
        "m.value": "long",
        "key": "string",  # no promotion in either direction
        "m.key": "string!",
        "x.y": "long!",  # no file from before has the struct
    }
    assert not found["x"].endswith("!")
    assert wider_columns(exact, kept) == (
        "'id' is long and not int",
        "'s.f' is double and not float",
        "'s.d' is decimal(9, 2) and not decimal(5, 2)",
        "'m.value' is long and not int",
    )
    assert compatible_schema(exact.to_json(), exact) == exact


def test_partitions_by_floats_are_not_widened() -> None:
    metadata = metadata_of(column("p", "double"), column("id", "long"), partitions=["p"])
    old = plain(p="float", id="long")
    new = converted(metadata, old)
    spec = partition_spec(metadata, new, table="db.t")
    with pytest.raises(UnsupportedFeatureError, match="partitions were of type float"):
        require_partition_types(old.to_json(), new, spec, "db.t")


def test_ids_that_meant_other_columns_of_the_files_are_refused() -> None:
    before = plain(l=array("long"), b="long")
    after = by_id(mapped(1, "l", array("long"), "l"), mapped(2, "b", "long", "b"), before=before)
    follow(before, after, r"it was 'l\.element'")
    two = plain(a="long", b="long")
    other = by_id(mapped(2, "a", "long", "a"), mapped(1, "b", "long", "b"), before=two)
    follow(two, other, "field id 2 is not what files from before have it for")
    follow(two, by_id(mapped(1, "a", "long", "a"), mapped(2, "b", "long", "b"), before=two))
