"""New tables and changes to them: by Delta's rules."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from delvec.delta.alter import columns, definition
from delvec.delta.alter.table_state import TableState, add_features
from delvec.delta.schema.known_properties import PROPERTIES, check_properties
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.protocol import FEATURES, Protocol
from delvec.delta.schema.traversal import all_fields
from delvec.delta.schema.types import ArrayType, Field, MapType, PrimitiveType, StructType
from delvec.errors import DelvecError, InvalidArgumentError, UnsupportedFeatureError

LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")
INNER = StructType((Field("x", LONG), Field("y", ArrayType(StructType((Field("z", LONG),))))))
PLAIN = StructType((Field("a", LONG), Field("b", TEXT)))
NESTED = StructType((Field("a", LONG), Field("s", INNER), Field("p", TEXT)))
OFF = {"delta.enableDeletionVectors": "false"}
NAMES = {"delta.columnMapping.mode": "name"}


def mapped(**properties: str) -> TableState:
    return definition.new_table(NESTED, ["p"], {**NAMES, **properties})


def protocol(state: TableState) -> tuple[int, int, str, str]:
    was = state.protocol
    readers, writers = (",".join(sorted(f)) for f in (was.reader_features, was.writer_features))
    return was.min_reader_version, was.min_writer_version, readers, writers


def ids(state: TableState) -> list[Any]:
    return [field.metadata["delta.columnMapping.id"] for field in all_fields(state.schema)]


class TestNewTables:
    def test_vectors_are_on_unless_told_otherwise(self) -> None:
        state = definition.new_table(PLAIN, name="n", description="d")
        assert protocol(state) == (3, 7, "deletionVectors", "appendOnly,deletionVectors,invariants")
        assert state.metadata.configuration == {"delta.enableDeletionVectors": "true"}
        assert (state.metadata.name, state.metadata.description) == ("n", "d")
        assert Metadata.from_json(state.metadata.to_json()) == state.metadata
        off = definition.new_table(PLAIN, properties={"delta.enabledeletionvectors": False})
        assert (protocol(off), off.metadata.configuration) == ((1, 2, "", ""), OFF)
        assert off.metadata.id != state.metadata.id

    @pytest.mark.parametrize(
        ("kind", "metadata", "properties", "feature"),
        [
            ("timestamp_ntz", {}, {}, "timestampNtz"),
            ("variant", {}, {}, "variantType"),
            ("long", {"delta.generationExpression": "a + 1"}, {}, "generatedColumns"),
            ("long", {"CURRENT_DEFAULT": "1"}, {}, "allowColumnDefaults"),
            ("long", {"delta.identity.start": 1}, {}, "identityColumns"),
            ("long", {}, {"delta.enableRowTracking": "true"}, "rowTracking,domainMetadata"),
            ("long", {}, {"delta.enableInCommitTimestamps": "true"}, "inCommitTimestamp"),
            ("long", {}, {"delta.checkpointPolicy": "v2"}, "v2Checkpoint"),
            ("long", {}, {"delta.enableChangeDataFeed": True}, "changeDataFeed"),
            ("long", {}, {"delta.constraints.c": "a > 0"}, "checkConstraints"),
            ("long", {}, {"delta.enableTypeWidening": "true"}, "typeWidening"),
            ("long", {}, {"delta.feature.vacuumProtocolCheck": "supported"}, "vacuumProtocolCheck"),
            ("long", {}, NAMES, "columnMapping"),
        ],
    )
    def test_columns_and_properties_bring_their_features(
        self, kind: str, metadata: dict[str, Any], properties: dict[str, Any], feature: str
    ) -> None:
        inner = Field("f", ArrayType(PrimitiveType(kind)))
        column = Field("c", PrimitiveType(kind), metadata=metadata)
        fields = (Field("a", LONG), column, Field("s", StructType((inner,))))
        state = definition.new_table(StructType(fields), properties=properties)
        added = set(feature.split(","))
        base = {"appendOnly", "invariants", "deletionVectors"}
        assert state.protocol.writer_features == base | added
        readers = {name for name in added if FEATURES[name].for_readers}
        assert state.protocol.reader_features == {"deletionVectors"} | readers

    def test_some_properties_are_not_kept(self) -> None:
        versions = {"delta.minReaderVersion": "1", "delta.MINWriterVersion": "2"}
        asked = {**versions, "delta.feature.appendOnly": "supported", "owner": "me", **OFF}
        state = definition.new_table(PLAIN, properties=asked)
        assert state.metadata.configuration == {**OFF, "owner": "me"}
        assert protocol(state) == (1, 2, "", "")

    def test_row_tracking_names_the_columns_that_keep_ids(self) -> None:
        state = definition.new_table(PLAIN, properties={"delta.enableRowTracking": "true"})
        for key, form in (("RowId", "_row-id-col-"), ("RowCommitVersion", "_row-commit-version-")):
            name = state.metadata.configuration[f"delta.rowTracking.materialized{key}ColumnName"]
            assert re.fullmatch(form + r"[-\w]{36,50}", name)

    def test_mapped_columns_have_ids_and_names_of_their_own(self) -> None:
        schema = StructType((Field("c, d", LONG), *NESTED.fields))
        state = definition.new_table(schema, properties=NAMES)
        assert ids(state) == [1, 2, 3, 4, 5, 6, 7]
        assert state.metadata.configuration["delta.columnMapping.maxColumnId"] == "7"
        physical = [field.physical_name for field in all_fields(state.schema)]
        assert all(re.fullmatch(r"col-[-0-9a-f]{36}", name) for name in physical)
        # The columns of another table come without what maps them there.
        again = definition.new_table(state.schema, properties={**NAMES, **OFF})
        assert not set(physical) & {field.physical_name for field in all_fields(again.schema)}
        renamed = replace(state.schema.fields[0], name="c")
        bare = definition.new_table(StructType((renamed, *state.schema.fields[1:])))
        assert all(not field.metadata for field in all_fields(bare.schema))

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ([], "no columns"),
            ([("a", LONG), ("A", LONG)], "more than one column of the same name: a, A"),
            ([("s", StructType((Field("x", LONG), Field("X", LONG))))], "s has more"),
            ([("a b", LONG)], "'a b' has one of"),
            ([("s", StructType((Field("x=", LONG),)))], "'x=' has one of"),
            ([("a", PrimitiveType("void"))], "no type"),
            ([("a", ArrayType(StructType((Field("x", LONG, nullable=False),))))], "NOT NULL"),
        ],
    )
    def test_columns_that_delta_does_not_take_are_refused(self, fields: Any, text: str) -> None:  # noqa: ANN401
        with pytest.raises(DelvecError, match=text):
            definition.new_table(StructType(tuple(Field(*each) for each in fields)))

    @pytest.mark.parametrize(
        ("schema", "columns", "text"),
        [
            (PLAIN, ["c"], "no column 'c'"),
            (PLAIN, ["a", "A"], "named twice"),
            (PLAIN, ["a", "b"], "by all its columns"),
            (NESTED, ["s"], "partitioned by s"),
        ],
    )
    def test_partitions_are_refused(
        self, schema: StructType, columns: list[str], text: str
    ) -> None:
        with pytest.raises(DelvecError, match=text):
            definition.new_table(schema, columns)

    @pytest.mark.parametrize(
        ("properties", "text"),
        [
            ({"delta.apendOnly": "true"}, "mean delta.appendOnly"),
            ({"delta.appendOnly": "yes"}, "takes true or false, not 'yes'"),
            ({"delta.checkpointInterval": "0"}, "number of 1 and more"),
            ({"delta.logRetentionDuration": "interval 1 month"}, "an interval"),
            ({"delta.isolationLevel": "none"}, "Serializable or"),
            ({"delta.feature.deletionVector": "supported"}, "mean deletionVec"),
            ({"delta.feature.appendOnly": "no"}, "set to 'supported'"),
            ({"delta.feature.clustering": "supported"}, "does not add"),
            ({"delta.feature.catalogManaged": "supported"}, "does not add"),
            ({"delta.enableIcebergCompatV2": "true"}, "Iceberg metadata"),
            ({Property.SYMLINK_MANIFEST: "true"}, "does not go together"),
            ({"delta.constraints.c": " "}, "no condition"),
            ({"owner": None}, "properties are strings"),
            ({"delta.enableChangeDataFeed": "true"}, "change data feed reserves"),
        ],
    )
    def test_other_properties_are_refused(self, properties: dict[str, Any], text: str) -> None:
        reserved = [Field("_Change_type", TEXT)] if "reserves" in text else []
        with pytest.raises(DelvecError, match=text):
            definition.new_table(StructType((*PLAIN.fields, *reserved)), (), properties)

    def test_every_known_property_can_be_set_or_says_why_not(self) -> None:
        tries = ["true", "1", "interval 7 days", "name", "classic", "Serializable"]
        tries += ["snappy", "1.0.0"]
        for known in PROPERTIES.values():
            valid = [text for text in tries if known.is_valid(text)]
            assert valid, known
            if known.managed:
                with pytest.raises(UnsupportedFeatureError, match="cannot be set"):
                    check_properties({known.name: valid[0]})
            else:
                assert check_properties({known.name.upper(): valid[0]}).properties == {
                    known.name: valid[0]
                }


class TestProperties:
    def test_what_writers_must_know_is_added(self) -> None:
        state = definition.new_table(PLAIN, properties=OFF)
        fed = definition.set_properties(state, {"delta.enableChangeDataFeed": "true", "k": "v"})
        assert protocol(fed) == (1, 7, "", "appendOnly,changeDataFeed,invariants")
        assert fed.metadata.configuration["k"] == "v"
        appended = definition.set_properties(state, {"delta.appendOnly": True})
        assert appended.protocol == state.protocol

    @pytest.mark.parametrize(
        ("properties", "text"),
        [
            ({"delta.enableDeletionVectors": "true"}, "enable_deletion_vectors"),
            (NAMES, r'add_feature\("columnMapping"\)'),
            ({"delta.checkpointPolicy": "v2"}, r'add_feature\("v2Checkpoint"\)'),
            ({"delta.constraints.c": "a > 0"}, "add_constraint"),
            ({"delta.enableRowTracking": "true"}, "delta-spark"),
            ({"delta.columnMapping.mode": "id"}, "from none to id"),
            ({"delta.columnMapping.maxColumnId": "9"}, "cannot be set"),
        ],
    )
    def test_what_shuts_out_readers_is_refused(self, properties: dict[str, str], text: str) -> None:
        with pytest.raises(DelvecError, match=text):
            definition.set_properties(definition.new_table(NESTED, ["p"], OFF), properties)

    def test_features_may_be_asked_for_as_properties(self) -> None:
        state = definition.new_table(PLAIN, properties=OFF)
        asked = {"delta.feature.deletionVectors": "supported"}
        on = definition.set_properties(state, {**asked, "delta.enableDeletionVectors": "true"})
        assert on.protocol == definition.new_table(PLAIN).protocol
        assert on.metadata.configuration == {"delta.enableDeletionVectors": "true"}

    def test_columns_are_mapped_to_the_names_they_have(self) -> None:
        state = definition.add_feature(definition.new_table(NESTED, ["p"], OFF), "columnMapping")
        named = definition.set_properties(state, NAMES)
        assert [field.physical_name for field in all_fields(named.schema)] == list("asxyzp")
        assert ids(named) == [1, 2, 3, 4, 5, 6]
        assert protocol(named) == (2, 7, "", "appendOnly,columnMapping,invariants")
        assert definition.set_properties(named, NAMES) == named
        for mode in ("id", "none"):
            with pytest.raises(InvalidArgumentError, match="from name to"):
                definition.set_properties(named, {"delta.columnMapping.mode": mode})

    def test_row_tracking_goes_on_while_there_are_no_rows(self) -> None:
        on = {"delta.enableRowTracking": "true"}
        state = definition.set_properties(definition.new_table(PLAIN), on, is_empty=lambda: True)
        assert {"rowTracking", "domainMetadata"} <= state.protocol.writer_features
        found = definition.set_properties(state, {"k": "v"}).metadata.configuration
        assert found == {**state.metadata.configuration, "k": "v"}

    def test_properties_go_again(self) -> None:
        state = definition.new_table(NESTED, (), {**NAMES, "delta.appendOnly": "true", "k": "v"})
        gone = definition.unset_properties(state, ["k", "delta.APPENDonly"])
        assert not {"k", "delta.appendOnly"} & set(gone.metadata.configuration)
        with pytest.raises(InvalidArgumentError, match="not set"):
            definition.unset_properties(gone, ["k"])
        assert definition.unset_properties(gone, ["k"], if_exists=True) == gone
        for name in ("delta.columnMapping.mode", "delta.columnMapping.maxColumnId"):
            with pytest.raises(InvalidArgumentError, match="the table needs it"):
                definition.unset_properties(state, [name])
        with pytest.raises(InvalidArgumentError, match="is a constraint"):
            definition.unset_properties(state, ["delta.constraints.c"])

    def test_vectors_are_switched_on_where_nothing_forbids_them(self) -> None:
        off = definition.new_table(PLAIN, properties=OFF)
        state = definition.enable_deletion_vectors(off)
        assert state.protocol == definition.new_table(PLAIN).protocol
        assert definition.enable_deletion_vectors(state) == state
        manifest = {Property.SYMLINK_MANIFEST: "true"}
        iceberg = off.with_properties({"delta.enableIcebergCompatV2": "true"})
        for forbidding in (definition.new_table(PLAIN, properties={**OFF, **manifest}), iceberg):
            with pytest.raises(UnsupportedFeatureError, match="does not go together"):
                definition.enable_deletion_vectors(forbidding)
        with pytest.raises(UnsupportedFeatureError, match="does not go together"):
            definition.set_properties(state, manifest)


class TestColumns:
    def test_columns_are_added_at_the_end(self) -> None:
        new = [Field("c", LONG), Field("s.y.element.w", TEXT), Field("`d.e`", LONG)]
        state = columns.add_columns(definition.new_table(NESTED), new)
        inner = "struct<x:long,y:array<struct<z:long,w:string>>>"
        assert str(state.schema) == f"struct<a:long,s:{inner},p:string,c:long,d.e:long>"
        ours = columns.add_columns(mapped(), new)
        assert ids(ours) == [1, 2, 3, 4, 5, 7, 6, 8, 9]
        assert ours.metadata.configuration["delta.columnMapping.maxColumnId"] == "9"

    @pytest.mark.parametrize(
        ("field", "text"),
        [
            (Field("A", LONG), "column 'A' already"),
            (Field("s.X", LONG), "column 'X' already"),
            (Field("c", LONG, nullable=False), "NOT NULL"),
            (Field("c", LONG, metadata={"CURRENT_DEFAULT": "1"}), "CURRENT_DEFAULT"),
            (Field("c", LONG, metadata={"delta.identity.step": 1}), "identity"),
            (Field("q.c", LONG), "no column 'q'"),
            (Field("a.c", LONG), "no field"),
            (Field("s.y.c", LONG), "by `element`"),
            (Field("c d", LONG), "in its name"),
            (Field("c", StructType((Field("x", PrimitiveType("void")),))), "no type"),
            (Field("c", ArrayType(StructType((Field("x", PrimitiveType("void")),)))), "no type"),
            (Field("c", ArrayType(PrimitiveType("void"))), "no type"),
            (Field("c", MapType(TEXT, ArrayType(PrimitiveType("void")))), "no type"),
            (Field("c", PrimitiveType("timestamp_ntz")), r'add_feature\("timestampNtz"\)'),
            (Field("..", LONG), "not a path"),
        ],
    )
    def test_columns_that_cannot_be_added(self, field: Field, text: str) -> None:
        with pytest.raises(InvalidArgumentError, match=text):
            columns.add_columns(definition.new_table(NESTED), [field])

    def test_renamed_columns_keep_their_files(self) -> None:
        state = mapped()
        renamed = columns.rename_column(state, "P", "q r")
        renamed = columns.rename_column(renamed, "s.y.element.Z", "w")
        assert renamed.metadata.partition_columns == ("q r",)
        assert [field.name for field in all_fields(renamed.schema)] == ["a", "s", *"xyw", "q r"]
        stored = ([f.physical_name for f in all_fields(each.schema)] for each in (state, renamed))
        assert next(stored) == next(stored)
        with pytest.raises(InvalidArgumentError, match="'A' already"):
            columns.rename_column(state, "s", "A")
        assert columns.rename_column(state, "a", "A").schema.names == ("A", "s", "p")

    def test_dropped_columns_are_gone(self) -> None:
        state = columns.drop_column(columns.drop_column(mapped(), "S.x"), "a")
        assert [field.name for field in all_fields(state.schema)] == list("syzp")
        assert state.metadata.configuration["delta.columnMapping.maxColumnId"] == "6"
        clustered = replace(state, clustering=((state.schema.field("s").physical_name, "x"),))
        for given, name, text in (
            (state, "s.y", "only one"),
            (state, "p", "partitioned by it"),
            (state, "a", "no column 'a'"),
            (clustered, "s", "clustered by it"),
        ):
            with pytest.raises(InvalidArgumentError, match=text):
                columns.drop_column(given, name)

    @pytest.mark.parametrize("drops", [False, True])
    def test_columns_that_something_names_stay(self, *, drops: bool) -> None:
        def change(state: TableState, name: str) -> TableState:
            return (
                columns.drop_column(state, name)
                if drops
                else columns.rename_column(state, name, "n")
            )

        with pytest.raises(UnsupportedFeatureError, match="know their columns by name"):
            change(definition.new_table(NESTED), "a")
        generated = Field("g", LONG, metadata={"delta.generationExpression": "`a` + s.x"})
        schema = StructType((*NESTED.fields, generated, Field("free", LONG)))
        check = {"delta.constraints.c": "free <> 'p' and p > 'x'"}
        properties = {**NAMES, **check, "delta.dataSkippingStatsColumns": "s.y"}
        state = definition.new_table(schema, properties=properties)
        for name, text in (
            *(("A", "generated column g"), ("s.x", "generated column g")),
            *(("p", "constraint c"), ("free", "constraint c"), ("s.y", "dataSkippingStatsColumns")),
        ):
            with pytest.raises(InvalidArgumentError, match=f"{text} names it"):
                change(state, name)
        change(state, "g")

    def test_rows_with_more_columns_widen_the_schema(self) -> None:
        state = mapped()
        inside = StructType((Field("y", INNER.fields[1].type), Field("w", TEXT)))
        kept = (Field("A", LONG), Field("s", inside), Field("p", PrimitiveType("void")))
        pairs = MapType(TEXT, StructType((Field("v", LONG, nullable=False),)))
        incoming = StructType((Field("NEW", LONG, nullable=False), *kept, Field("m", pairs)))
        wide = columns.evolve_schema(state, incoming)
        assert wide.schema.names == ("a", "s", "p", "NEW", "m")
        assert [field.name for field in all_fields(wide.schema)] == [*"asxyzwp", "NEW", *"mv"]
        assert ids(wide) == [1, 2, 3, 4, 5, 7, 6, 8, 9, 10]
        assert all(field.nullable for field in all_fields(wide.schema))
        assert columns.evolve_schema(wide, incoming) == wide
        assert columns.evolve_schema(wide, StructType(())) == wide

    def test_types_of_rows_are_cast_widened_or_refused(self) -> None:
        state = mapped()
        assert columns.evolve_schema(state, StructType((Field("a", TEXT),))) == state
        narrow = StructType((Field("n", PrimitiveType("integer")),))
        for properties, name in ({}, "integer"), ({"delta.enableTypeWidening": "true"}, "long"):
            old = definition.new_table(narrow, properties=properties)
            new = columns.evolve_schema(old, StructType((Field("n", LONG),)))
            assert str(new.schema) == f"struct<n:{name}>"
        for path, kind in (("s", LONG), ("p", ArrayType(TEXT))):
            with pytest.raises(InvalidArgumentError, match=f"column {path} is .* in the rows"):
                columns.evolve_schema(state, StructType((Field(path, kind),)))


class TestConstraintsAndFeatures:
    def test_what_a_table_went_without_before_is_let_be(self) -> None:
        state = definition.new_table(StructType((Field("t", PrimitiveType("timestamp_ntz")),)))
        odd = replace(state, protocol=Protocol(1, 2))
        assert definition.set_properties(odd, {"k": "v"}).protocol == Protocol(1, 2)
        assert definition.add_constraint(odd, "c", "t > now()").protocol == Protocol(1, 3)

    def test_constraints_come_and_go(self) -> None:
        state = definition.new_table(PLAIN, properties=OFF)
        with_check = definition.add_constraint(state, "Positive", " a > 0 ")
        assert protocol(with_check) == (1, 3, "", "")
        assert with_check.metadata.configuration["delta.constraints.positive"] == "a > 0"
        with pytest.raises(InvalidArgumentError, match="constraint positive already: a > 0"):
            definition.add_constraint(with_check, "POSITIVE", "a > 1")
        gone = definition.drop_constraint(with_check, "posiTive")
        assert gone.metadata == state.metadata
        with pytest.raises(InvalidArgumentError, match="constraint positive: the table has none"):
            definition.drop_constraint(gone, "positive")
        assert definition.drop_constraint(gone, "positive", if_exists=True) == gone

    @pytest.mark.parametrize(
        ("was", "added", "expected"),
        [
            ((1, 1), "appendOnly", (1, 7, "", "appendOnly")),
            ((1, 2), "CheckConstraints", (1, 3, "", "")),
            ((1, 2), "rowTracking", (1, 7, "", "appendOnly,domainMetadata,invariants,rowTracking")),
            ((1, 3), "columnMapping", (2, 7, "", "appendOnly,checkConstraints,columnMapping,inva")),
            ((1, 4), "columnMapping", (2, 5, "", "")),
            ((2, 5), "identityColumns", (2, 6, "", "")),
            (
                (2, 5),
                "deletionVectors",
                (3, 7, "columnMapping,deletionVectors", "appendOnly,change"),
            ),
            ((1, 2), "v2Checkpoint", (3, 7, "v2Checkpoint", "appendOnly,invariants,v2Checkpoint")),
        ],
    )
    def test_features_raise_the_protocol_no_higher_than_needed(
        self, was: tuple[int, int], added: str, expected: tuple[int, int, str, str]
    ) -> None:
        state = definition.new_table(PLAIN, properties=OFF)
        state = definition.add_feature(replace(state, protocol=Protocol(*was)), added)
        found = protocol(state)
        assert (*found[:3], found[3][: len(expected[3])]) == expected
        assert definition.add_feature(state, added) == state
        assert Protocol.from_json(state.protocol.to_json()) == state.protocol

    def test_protocols_are_never_lowered(self) -> None:
        named = frozenset({"appendOnly", "invariants"})
        was = Protocol(3, 7, frozenset(), named)
        assert add_features(was, ["invariants"]) == was
        more = named | {"checkConstraints"}
        assert add_features(was, ["checkConstraints"]) == Protocol(3, 7, frozenset(), more)
        unknown = Protocol(3, 7, frozenset({"new"}), frozenset({"new"}))
        assert add_features(unknown, ["appendOnly"]).reader_features == {"new"}

    def test_features_that_delvec_does_not_write_are_refused(self) -> None:
        for name, feature in FEATURES.items():
            if feature.writing in ("moved", "no_files", "no_vectors") or not feature.is_read:
                with pytest.raises(UnsupportedFeatureError, match=f"does not add .* {name}"):
                    definition.add_feature(definition.new_table(PLAIN), name)
