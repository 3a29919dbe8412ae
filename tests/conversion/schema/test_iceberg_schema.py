from __future__ import annotations

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
    target_schema,
    walk_iceberg,
)
from delvec.conversion.schema.partition_spec import partition_spec
from delvec.delta.schema.metadata import Metadata
from delvec.errors import FormatError, UnsupportedFeatureError
from tests.conversion.schema.columns import array, column, mapped, metadata_of, of_map, struct


def converted(metadata: Metadata, before: TargetSchema | None = None) -> TargetSchema:
    return target_schema(
        metadata,
        table="db.t",
        format_version=3,
        current=before.to_json() if before else None,
        last_column_id=before.last_column_id if before else 0,
    )


def ids(schema: TargetSchema) -> dict[str, int]:
    return {
        ".".join(each.name for each in path): path[-1].id for path in walk_iceberg(schema.fields)
    }


def refused(metadata: Metadata, before: TargetSchema | None = None) -> str:
    with pytest.raises(UnsupportedFeatureError) as caught:
        converted(metadata, before)
    assert caught.value.needed_by == "db.t"
    assert caught.value.hint
    return str(caught.value)


EVERY_TYPE = {
    "string": "string",
    "long": "long",
    "integer": "int",
    "short": "int",
    "byte": "int",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
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


def test_every_type_has_its_counterpart() -> None:
    schema = converted(metadata_of(*(column(f"c_{kind}", kind) for kind in EVERY_TYPE)))
    assert [field.type for field in schema.fields] == list(EVERY_TYPE.values())


def test_nested_columns_have_ids_nullability_and_comments() -> None:
    assert converted(metadata_of(*NESTED)).to_json() == {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 1, "name": "a", "required": True, "type": "long", "doc": "the key"},
            {
                "id": 2,
                "name": "s",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [
                        {"id": 3, "name": "x", "required": False, "type": "int"},
                        {"id": 4, "name": "y", "required": True, "type": "string"},
                    ],
                },
            },
            {
                "id": 5,
                "name": "l",
                "required": False,
                "type": {
                    "type": "list",
                    "element-id": 6,
                    "element": {
                        "type": "struct",
                        "fields": [
                            {
                                "id": 7,
                                "name": "p",
                                "required": False,
                                "type": {
                                    "type": "list",
                                    "element-id": 8,
                                    "element": "int",
                                    "element-required": False,
                                },
                            }
                        ],
                    },
                    "element-required": False,
                },
            },
            {
                "id": 9,
                "name": "m",
                "required": False,
                "type": {
                    "type": "map",
                    "key-id": 10,
                    "key": "string",
                    "value-id": 11,
                    "value": {
                        "type": "list",
                        "element-id": 12,
                        "element": "long",
                        "element-required": False,
                    },
                    "value-required": False,
                },
            },
        ],
    }


def test_not_null_inside_of_lists_and_maps_is_not_trusted() -> None:
    inner = struct(column("x", "long", nullable=False))
    schema = converted(
        metadata_of(
            column("l", array(inner, contains_null=False)), column("m", of_map("long", inner))
        )
    )
    required = {
        ".".join(e.name for e in path): path[-1].required for path in walk_iceberg(schema.fields)
    }
    assert [name for name, value in required.items() if value] == ["m.key"]


class TestWithoutMapping:
    def test_ids_are_kept_by_name_and_new_ones_come_after_all_that_were_ever_used(self) -> None:
        before = converted(metadata_of(column("a", "long"), column("l", array("long"))))
        assert ids(before) == {"a": 1, "l": 2, "l.element": 3}
        dropped = converted(metadata_of(column("l", array("long"))), before)
        after = converted(
            metadata_of(column("b", "long"), column("l", array("long")), column("a", "long")),
            dropped,
        )
        assert ids(after) == {"b": 4, "l": 2, "l.element": 3, "a": 5}
        assert after.last_column_id == 5

    def test_names_that_differ_in_case_are_other_columns(self) -> None:
        before = converted(metadata_of(column("a", "long")))
        assert ids(converted(metadata_of(column("A", "long")), before)) == {"A": 2}

    def test_a_column_whose_type_cannot_be_promoted_keeps_its_id_and_what_is_inside_gets_others(
        self,
    ) -> None:
        before = converted(
            metadata_of(column("a", "integer"), column("b", struct(column("x", "date"))))
        )
        after = converted(metadata_of(column("a", "long"), column("b", array("string"))), before)
        assert ids(after) == {"a": 1, "b": 2, "b.element": 4}

    def test_the_same_table_gives_the_same_schema(self) -> None:
        before = converted(metadata_of(*NESTED))
        after = converted(metadata_of(*NESTED), before)
        assert after.to_json() == before.to_json()
        assert after.is_same_as(before.to_json() | {"schema-id": 7})
        assert not after.is_same_as(converted(metadata_of(*NESTED[:2])).to_json())
        assert after.nested_without_ids == ()

    def test_names_in_files_are_mapped_at_all_depths(self) -> None:
        assert converted(metadata_of(*NESTED[2:])).name_mapping() == [
            {
                "field-id": 1,
                "names": ["l"],
                "fields": [
                    {
                        "field-id": 2,
                        "names": ["element"],
                        "fields": [
                            {
                                "field-id": 3,
                                "names": ["p"],
                                "fields": [{"field-id": 4, "names": ["element"]}],
                            }
                        ],
                    }
                ],
            },
            {
                "field-id": 5,
                "names": ["m"],
                "fields": [
                    {"field-id": 6, "names": ["key"]},
                    {
                        "field-id": 7,
                        "names": ["value"],
                        "fields": [{"field-id": 8, "names": ["element"]}],
                    },
                ],
            },
        ]

    def test_columns_that_are_no_more_stay_mapped_for_older_snapshots(self) -> None:
        before = converted(
            metadata_of(column("a", "long"), column("b", struct(column("x", "long"))))
        )
        after = converted(metadata_of(column("b", struct(column("y", "long")))), before)
        assert after.name_mapping(before.name_mapping()) == [
            {
                "field-id": 2,
                "names": ["b"],
                "fields": [{"field-id": 4, "names": ["y"]}, {"field-id": 3, "names": ["x"]}],
            },
            {"field-id": 1, "names": ["a"]},
        ]
        again = converted(metadata_of(column("a", "string")), after)
        assert [entry["field-id"] for entry in again.name_mapping(before.name_mapping())] == [5, 2]


class TestWithMapping:
    def test_ids_are_those_of_delta_at_all_depths(self) -> None:
        schema = converted(
            metadata_of(
                mapped(7, "a", "long"),
                mapped(3, "s", struct(mapped(9, "x", "long"))),
                mapped(4, "l", array(struct(mapped(11, "y", "long")))),
                mode="name",
            )
        )
        assert ids(schema) == {
            "a": 7,
            "s": 3,
            "s.x": 9,
            "l": 4,
            "l.element": FIRST_OWN_ID,
            "l.element.y": 11,
        }
        assert schema.name_mapping()[0] == {"field-id": 7, "names": ["col-7"]}
        assert schema.nested_without_ids == ()

    def test_nested_ids_of_delta_are_taken(self) -> None:
        schema = converted(
            metadata_of(
                mapped(
                    1, "c", array(array("integer")), "p.q", {"element": 100, "element.element": 101}
                ),
                mapped(2, "m", of_map("integer", array("long")), None, {"key": 102, "value": 103}),
                mapped(
                    3,
                    "n",
                    of_map("long", struct(mapped(4, "x", array("long"), None, {"element": 107}))),
                    None,
                    {"key": 105, "value": 106},
                ),
                mode="id",
            )
        )
        assert ids(schema) == {
            "c": 1,
            "c.element": 100,
            "c.element.element": 101,
            "m": 2,
            "m.key": 102,
            "m.value": 103,
            "m.value.element": FIRST_OWN_ID,
            "n": 3,
            "n.key": 105,
            "n.value": 106,
            "n.value.x": 4,
            "n.value.x.element": 107,
        }
        assert schema.nested_without_ids == ("m.value",)

    def test_columns_that_files_have_no_ids_for_are_told(self) -> None:
        schema = converted(
            metadata_of(
                mapped(1, "numbers", array("long")),
                mapped(2, "structs", array(struct(mapped(3, "x", "long")))),
                mapped(4, "named", of_map("string", struct(mapped(5, "x", array("long"))))),
                mapped(6, "plain", of_map("string", "long")),
                mapped(7, "deep", struct(mapped(8, "lists", array(array("long"))))),
                mode="name",
            )
        )
        assert schema.nested_without_ids == (
            "numbers",
            "named.value.x",
            "plain",
            "deep.lists",
            "deep.lists.element",
        )

    def test_own_ids_are_kept_when_the_column_is_renamed_and_not_when_it_is_made_anew(self) -> None:
        before = converted(metadata_of(mapped(1, "l", array("long")), mode="name"))
        renamed = converted(metadata_of(mapped(1, "k", array("long")), mode="name"), before)
        assert ids(renamed) == {"k": 1, "k.element": FIRST_OWN_ID}
        again = converted(metadata_of(mapped(2, "k", array("long")), mode="name"), renamed)
        assert ids(again) == {"k": 2, "k.element": FIRST_OWN_ID + 1}

    def test_ids_that_delta_gives_out_later_never_meet_our_own(self) -> None:
        lists = [mapped(number, f"l{number}", array("long")) for number in (1, 2, 3)]
        schema = converted(
            metadata_of(lists[0], mode="name", delta__columnMapping__maxColumnId="1")
        )
        for count in (2, 3):
            schema = converted(metadata_of(*lists[:count], mode="name"), schema)
        found = list(ids(schema).values())
        assert sorted(found) == [1, 2, 3, *range(FIRST_OWN_ID, FIRST_OWN_ID + 3)]

    def test_an_id_of_ours_from_before_the_mapping_is_given_up(self) -> None:
        before = converted(metadata_of(column("l", array("long")), column("b", "long")))
        after = converted(
            metadata_of(
                mapped(1, "l", array("long"), "l"), mapped(2, "b", "long", "b"), mode="name"
            ),
            before,
        )
        assert ids(before) == {"l": 1, "l.element": 2, "b": 3}
        assert ids(after) == {"l": 1, "l.element": FIRST_OWN_ID, "b": 2}

    @pytest.mark.parametrize("number", [0, -1, FIRST_OWN_ID, 2**31 - 2])
    def test_an_id_out_of_range_is_refused(self, number: int) -> None:
        with pytest.raises(FormatError, match=r"'a' of db\.t"):
            converted(metadata_of(mapped(number, "a", "long"), mode="id"))

    def test_an_id_that_comes_twice_is_refused(self) -> None:
        with pytest.raises(FormatError, match="another than that of 'a'"):
            converted(
                metadata_of(
                    mapped(1, "a", "long"),
                    mapped(2, "s", struct(mapped(1, "x", "long"))),
                    mode="id",
                )
            )


class TestRefusals:
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
    def test_columns_that_would_read_wrong(self, kind: Any, more: Any, expected: str) -> None:  # noqa: ANN401
        text = refused(metadata_of(column("ok", "long"), column("c", kind, more)))
        assert "db.t" in text
        assert "'c'" in text
        assert expected in text

    def test_they_are_found_inside_of_others(self) -> None:
        inner = struct(column("x", of_map("string", "variant")))
        assert "'l.element.x'" in refused(metadata_of(column("l", array(inner))))

    def test_a_text_with_a_longest_length_is_a_text(self) -> None:
        kind = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
        assert converted(metadata_of(column("c", "string", kind))).fields[0].type == "string"

    @pytest.mark.parametrize(
        "name", ["_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_FILE"]
    )
    def test_names_of_icebergs_own_columns(self, name: str) -> None:
        assert name in refused(metadata_of(column(name, "long")))
        converted(metadata_of(column("s", struct(column(name, "long")))))

    @pytest.mark.parametrize(
        "columns",
        [
            (column("a", "long"), column("A", "long")),
            (column("a.b", "long"), column("a", struct(column("b", "long")))),
            (column("l.element", "long"), column("l", array("long"))),
        ],
    )
    def test_names_that_iceberg_cannot_tell_apart(self, columns: Any) -> None:  # noqa: ANN401
        assert "cannot tell it from" in refused(metadata_of(*columns))

    @pytest.mark.parametrize(
        ("before", "after", "kind"),
        [
            ("byte", "short", "short"),
            ("byte", "integer", "integer"),
            ("integer", "long", "long"),
            ("byte", "long", "long"),
            ("float", "double", "double"),
            ("decimal(6, 2)", "decimal(10,2)", "decimal(10,2)"),
        ],
    )
    def test_types_that_were_widened_as_iceberg_does_it_are_fine(
        self, before: str, after: str, kind: str
    ) -> None:
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
    def test_types_that_were_widened_otherwise(self, before: str, after: str) -> None:
        changes = [{"fromType": before, "toType": after}]
        text = refused(metadata_of(column("c", after, {"delta.typeChanges": changes})))
        assert f"changed from {before} to {after}" in text
        assert "DROP FEATURE typeWidening" in text
        inside = [{"fromType": before, "toType": after, "fieldPath": "element.value"}]
        kind = array(of_map("string", after))
        nested = metadata_of(column("c", kind, {"delta.typeChanges": inside}))
        assert "'c.element.value'" in refused(nested)

    def test_the_first_version_of_the_format(self) -> None:
        with pytest.raises(UnsupportedFeatureError, match="version 1"):
            target_schema(
                metadata_of(column("a", "long")),
                table="db.t",
                format_version=1,
                current=None,
                last_column_id=0,
            )


class TestEvolution:
    def follow(self, before: TargetSchema, after: TargetSchema) -> None:
        require_evolution(before.to_json(), after, "db.t", before.name_mapping())

    def refused(self, before: TargetSchema, after: TargetSchema) -> str:
        with pytest.raises(UnsupportedFeatureError) as caught:
            self.follow(before, after)
        return str(caught.value)

    def test_columns_are_added_dropped_renamed_and_widened(self) -> None:
        before = converted(
            metadata_of(
                mapped(1, "a", "integer"),
                mapped(2, "b", "long"),
                mapped(3, "s", struct(mapped(4, "x", "float"))),
                mode="name",
            )
        )
        swapped = metadata_of(
            mapped(2, "a", "long"),
            mapped(1, "b", "long"),
            mapped(3, "s", struct(mapped(4, "x", "double"), mapped(5, "y", "string"))),
            mode="name",
        )
        self.follow(before, converted(swapped, before))
        fewer = metadata_of(mapped(3, "s", struct(mapped(4, "x", "float"))), mode="name")
        self.follow(before, converted(fewer, before))

    def test_a_type_that_is_no_promotion_is_refused(self) -> None:
        before = converted(metadata_of(mapped(1, "a", "string"), mode="name"))
        after = converted(metadata_of(mapped(1, "a", "long"), mode="name"), before)
        assert "it was string and is long now" in self.refused(before, after)
        unmapped = converted(metadata_of(column("a", "string")))
        changed = converted(metadata_of(column("a", "long")), unmapped)
        assert "it was string and is long now" in self.refused(unmapped, changed)

    def test_nulls_cannot_be_forbidden_while_files_have_them(self) -> None:
        before = converted(metadata_of(column("a", "long")))
        after = converted(metadata_of(column("a", "long", nullable=False)), before)
        assert "it had nulls" in self.refused(before, after)
        more = converted(
            metadata_of(column("a", "long"), column("b", "long", nullable=False)), before
        )
        assert "do not have it" in self.refused(before, more)
        inner = struct(column("x", "long", nullable=False))
        self.follow(before, converted(metadata_of(column("a", "long"), column("s", inner)), before))

    def test_types_are_not_narrowed_and_nulls_not_forbidden_again(self) -> None:
        """As by a RESTORE of the source to before it widened its columns."""
        wide = metadata_of(
            column("id", "long"),
            column("s", struct(column("f", "double"), column("d", "decimal(9,2)"))),
            column("m", of_map("string", "long")),
            column("key", "long"),
        )
        narrow = metadata_of(
            column("id", "integer", nullable=False),
            column("s", struct(column("f", "float"), column("d", "decimal(5,2)"))),
            column("m", of_map("string", "integer")),
            column("key", "string"),
            column("x", struct(column("y", "long", nullable=False)), nullable=False),
        )
        before = converted(wide)
        exact = converted(narrow, before)
        kept = compatible_schema(before.to_json(), exact)
        found = {
            ".".join(each.name for each in path): (str(path[-1].type), path[-1].required)
            for path in walk_iceberg(kept.fields)
        }
        assert found["id"] == ("long", False)
        assert found["s.f"] == ("double", False)
        assert found["s.d"] == ("decimal(9, 2)", False)
        assert found["m.key"] == ("string", True)
        assert found["m.value"] == ("long", False)
        assert found["key"] == ("string", False)  # no promotion in either direction
        assert found["x.y"] == ("long", True)  # no file from before has the struct
        assert found["x"][1] is False
        assert wider_columns(exact, kept) == (
            "'id' is long and not int",
            "'s.f' is double and not float",
            "'s.d' is decimal(9, 2) and not decimal(5, 2)",
            "'m.value' is long and not int",
        )
        assert compatible_schema(exact.to_json(), exact) == exact

    def test_partitions_by_floats_are_not_widened(self) -> None:
        metadata = metadata_of(column("p", "double"), column("id", "long"), partitions=["p"])
        old = converted(metadata_of(column("p", "float"), column("id", "long")))
        new = converted(metadata, old)
        spec = partition_spec(metadata, new, table="db.t")
        with pytest.raises(UnsupportedFeatureError, match="partitions were of type float"):
            require_partition_types(old.to_json(), new, spec, "db.t")

    def test_ids_that_meant_other_columns_of_the_files_are_refused(self) -> None:
        before = converted(metadata_of(column("l", array("long")), column("b", "long")))
        after = converted(
            metadata_of(
                mapped(1, "l", array("long"), "l"), mapped(2, "b", "long", "b"), mode="name"
            ),
            before,
        )
        assert "it was 'l.element'" in self.refused(before, after)
        two = converted(metadata_of(column("a", "long"), column("b", "long")))
        other = metadata_of(mapped(2, "a", "long", "a"), mapped(1, "b", "long", "b"), mode="name")
        text = self.refused(two, converted(other, two))
        assert "field id 2 is not what files from before have it for" in text
        same = converted(metadata_of(column("a", "long"), column("b", "long")))
        switched = metadata_of(
            mapped(1, "a", "long", "a"), mapped(2, "b", "long", "b"), mode="name"
        )
        self.follow(same, converted(switched, same))
