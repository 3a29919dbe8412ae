from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from delvec.conversion.schema.iceberg_schema import TargetSchema, target_schema
from delvec.conversion.schema.partition_spec import (
    PartitionSpec,
    partition_json,
    partition_spec,
    require_same_spec,
)
from delvec.delta.schema.metadata import Metadata
from delvec.errors import FormatError, UnsupportedFeatureError
from tests.conversion.schema.columns import column, files_of, mapped, metadata_of, struct

INFINITE = float("inf")


def schema_of(metadata: Metadata) -> TargetSchema:
    return target_schema(metadata, table="db.t", format_version=3, current=None, last_column_id=0)


def spec_of(metadata: Metadata) -> PartitionSpec:
    return partition_spec(metadata, schema_of(metadata), table="db.t")


def by_p(kind: str) -> Metadata:
    return metadata_of(column("a", "long"), column("p", kind), partitions=["p"])


def generated(name: str, kind: str, expression: str) -> dict[str, Any]:
    return column(name, kind, {"delta.generationExpression": expression})


def transforms(source: str, *columns: dict[str, Any]) -> list[tuple[str, str]]:
    """Give name and transform of the fields that come after the identities."""
    partitions = [each["name"] for each in columns]
    spec = spec_of(metadata_of(column("c", source), *columns, partitions=partitions))
    return [(field.name, field.transform) for field in spec.fields[len(columns) :]]


def values_of(
    root: Path, metadata: Metadata, *partitions: Mapping[str, str | None], time_zone: str = "UTC"
) -> list[Any]:
    files = files_of(root, metadata, *({"partitionValues": values} for values in partitions))
    texts = partition_json(files, spec_of(metadata), time_zone=time_zone)
    return [json.loads(text) for text in texts.to_pylist()]


def test_every_partition_column_is_an_identity_field_in_order() -> None:
    metadata = metadata_of(
        mapped(7, "a", "long"),
        mapped(3, "b c", "string"),
        mapped(5, "d", "date"),
        partitions=["d", "B C"],
        mode="name",
    )
    assert spec_of(metadata).to_json() == {
        "spec-id": 0,
        "fields": [
            {"name": "d", "transform": "identity", "source-id": 5, "field-id": 1000},
            {"name": "b c", "transform": "identity", "source-id": 3, "field-id": 1001},
        ],
    }


def test_a_table_without_partitions_has_an_empty_spec_and_empty_values(tmp_path: Path) -> None:
    metadata = metadata_of(column("a", "long"))
    assert spec_of(metadata).to_json() == {"spec-id": 0, "fields": []}
    assert values_of(tmp_path, metadata, {}, {}) == [[], []]


class TestValues:
    @pytest.mark.parametrize(
        ("kind", "text", "expected"),
        [
            ("string", 'a "b"\\ ü\n', 'a "b"\\ ü\n'),
            ("string", "", None),
            ("long", str(-(2**63)), -(2**63)),
            ("byte", "-128", -128),
            ("boolean", "true", True),
            ("double", "0.1", 0.1),
            ("double", "100", 100.0),
            ("double", "Infinity", INFINITE),
            ("float", "-Infinity", -INFINITE),
            ("float", "0.1", 0.10000000149011612),
            ("date", "2020-02-29", "2020-02-29"),
            ("date", "0001-01-01", "0001-01-01"),
            ("timestamp", "2020-01-01 00:00:00", "2020-01-01T00:00:00.000000+00:00"),
            ("timestamp", "2020-01-01T00:00:00.5+02:00", "2019-12-31T22:00:00.500000+00:00"),
            ("timestamp_ntz", "2020-01-01 01:02:03.000004", "2020-01-01T01:02:03.000004"),
            ("decimal(20,10)", "0", "0.0000000000"),
            ("decimal(38,0)", "-" + "9" * 38, "-" + "9" * 38),
            ("binary", "aÿ", "61C3BF"),
        ],
    )
    def test_each_type_has_its_form(
        self, tmp_path: Path, kind: str, text: str, expected: object
    ) -> None:
        metadata = by_p(kind)
        found = values_of(tmp_path, metadata, {"p": text}, {"p": None}, {})
        assert found == [[expected], [None], [None]]
        assert type(found[0][0]) is type(expected)

    def test_zones_zeros_and_what_is_no_number(self, tmp_path: Path) -> None:
        """An instant without a zone is one of the session's, both zeros are one."""
        values, zone = {"p": "2020-07-01 00:00:00"}, "Europe/Berlin"
        found = values_of(tmp_path / "zone", by_p("timestamp"), values, time_zone=zone)
        assert found == [["2020-06-30T22:00:00.000000+00:00"]]
        [[zero]] = values_of(tmp_path / "zero", by_p("double"), {"p": "-0.0"})
        assert str(zero) == "0.0"
        with pytest.raises(UnsupportedFeatureError, match=r"NaN .*'p' of part-1\.parquet"):
            values_of(tmp_path / "nan", by_p("float"), {"p": "1"}, {"p": "NaN"})

    @pytest.mark.parametrize(
        ("kind", "text"), [("date", "+12345-01-01"), ("date", "0000-01-01"), ("long", "x")]
    )
    def test_what_is_no_value_is_refused_by_file(
        self, tmp_path: Path, kind: str, text: str
    ) -> None:
        metadata = by_p(kind)
        with pytest.raises(FormatError, match=r"'p' of part-1\.parquet.*expected a") as caught:
            values_of(tmp_path, metadata, {"p": None}, {"p": text})
        assert caught.value.path == str(tmp_path)

    def test_values_are_found_by_the_names_in_files(self, tmp_path: Path) -> None:
        metadata = metadata_of(
            mapped(1, "a", "long"), mapped(2, "p", "long"), partitions=["p"], mode="name"
        )
        assert values_of(tmp_path, metadata, {"col-2": "5"}) == [[5]]


class TestGeneratedColumns:
    @pytest.mark.parametrize(
        ("source", "kind", "expression", "expected"),
        [
            ("timestamp_ntz", "date", "CAST(c AS DATE)", [("c_day", "day")]),
            ("timestamp_ntz", "date", " cast ( `C`  as date ) ", [("c_day", "day")]),
            ("timestamp_ntz", "integer", "YEAR(c)", [("c_year", "year")]),
            ("date", "integer", "year( c )", [("c_year", "year")]),
            # These depend on the time zone of the session that wrote.
            ("timestamp", "date", "CAST(c AS DATE)", []),
            ("timestamp", "integer", "YEAR(c)", []),
            ("timestamp_ntz", "string", "DATE_FORMAT(c, 'yyyy-MM')", []),
            ("timestamp_ntz", "string", "DATE_FORMAT(c, 'yyyy-MM-dd-HH')", []),
            # These are parts of a time that is not known further up.
            ("timestamp_ntz", "integer", "MONTH(c)", []),
            ("timestamp_ntz", "integer", "HOUR(c)", []),
            # These are something else.
            ("timestamp_ntz", "integer", "YEAR(c) + 1", []),
            ("timestamp_ntz", "integer", "YEAR(d)", []),
            ("timestamp_ntz", "string", "YEAR(c)", []),
            ("string", "integer", "YEAR(c)", []),
            ("date", "date", "CAST(c AS DATE)", []),
        ],
    )
    def test_only_exact_ones_are_transforms(
        self, source: str, kind: str, expression: str, expected: list[tuple[str, str]]
    ) -> None:
        assert transforms(source, generated("p", kind, expression)) == expected

    def test_parts_go_together_down_to_the_finest_unit(self) -> None:
        parts = [
            generated("y", "integer", "YEAR(c)"),
            generated("m", "integer", "MONTH(c)"),
            generated("d", "integer", "DAYOFMONTH(c)"),
            generated("h", "integer", "HOUR(c)"),
        ]
        found = [transforms("timestamp_ntz", *parts[:count]) for count in (1, 2, 3, 4)]
        assert found == [[(f"c_{unit}", unit)] for unit in ("year", "month", "day", "hour")]
        assert transforms("timestamp_ntz", *parts[1:]) == []
        assert transforms("timestamp_ntz", parts[0], parts[3]) == [("c_year", "year")]
        day = generated("p", "date", "CAST(c AS DATE)")
        assert transforms("timestamp_ntz", day, parts[3]) == [("c_hour", "hour")]

    def test_names_do_not_meet_those_of_columns(self) -> None:
        metadata = metadata_of(
            column("c", "date"),
            column("C_Year", "long"),
            generated("p", "integer", "YEAR(c)"),
            partitions=["p"],
        )
        assert [field.name for field in spec_of(metadata).fields] == ["p", "c_year_part"]

    def test_they_are_left_out_on_request(self) -> None:
        metadata = metadata_of(
            column("c", "date"), generated("p", "integer", "YEAR(c)"), partitions=["p"]
        )
        spec = partition_spec(metadata, schema_of(metadata), table="db.t", transforms=False)
        assert [field.name for field in spec.fields] == ["p"]

    def test_values_are_units_since_1970(self, tmp_path: Path) -> None:
        # Sources, and for each the units of its partitions, which stand beside it.
        parts = {"c": "YEAR MONTH DAY HOUR", "b": "YEAR MONTH", "e": "YEAR", "g": "YEAR MONTH DAY"}
        columns = [
            each
            for source, units in parts.items()
            for each in (
                column(source, "date" if source in "bg" else "timestamp_ntz"),
                *(generated(f"{source}{u}", "integer", f"{u}({source})") for u in units.split()),
            )
        ]
        columns += [column("f", "timestamp_ntz"), generated("fd", "date", "CAST(f AS DATE)")]
        of_c, of_b, of_e = (f"c{u}" for u in parts["c"].split()), ("bYEAR", "bMONTH"), "eYEAR"
        partitions = [*of_c, *of_b, of_e, "fd", "gYEAR", "gMONTH", "gDAY"]
        metadata = metadata_of(*columns, partitions=partitions)
        names = metadata.partition_columns
        epoch = ["1970", "1", "1", "0", "1970", "1", "1970", "1970-01-01", "1970", "1", "1"]
        early = ["1969", "12", "31", "23", "1969", "12", "1", "1969-12-31", "12345", "2", "28"]
        leap = ["2024", "2", "29", "5", "2024", "2", "2024", "2024-02-29", "-5", "12", "31"]
        rows = [
            dict(zip(names, values, strict=True))
            for values in (epoch, early, leap, [None] * len(names))
        ]
        found = [row[len(names) :] for row in values_of(tmp_path, metadata, *rows)]
        assert found == [
            [0, 0, 0, "1970-01-01", "1970-01-01"],
            [-1, -1, -1969, "1969-12-31", "+12345-02-28"],
            [19782 * 24 + 5, 54 * 12 + 1, 54, "2024-02-29", "-0005-12-31"],
            [None] * 5,
        ]

    @pytest.mark.parametrize(
        ("month", "day"), [("13", "1"), ("0", "1"), ("2", "30"), ("1", "0"), (None, "1")]
    )
    def test_parts_that_are_no_time_are_refused(
        self, tmp_path: Path, month: str | None, day: str
    ) -> None:
        metadata = metadata_of(
            column("c", "date"),
            generated("y", "integer", "YEAR(c)"),
            generated("m", "integer", "MONTH(c)"),
            generated("d", "integer", "DAY(c)"),
            partitions=["y", "m", "d"],
        )
        wrong = {"y": "2023", "m": month, "d": day}
        with pytest.raises(FormatError, match=r"part-1\.parquet"):
            values_of(tmp_path, metadata, {"y": None, "m": None, "d": None}, wrong)


class TestSameSpec:
    def test_a_renamed_column_is_the_same_partition(self) -> None:
        before, after = (
            metadata_of(
                mapped(1, "a", "long"), mapped(2, name, "date"), partitions=[name], mode="id"
            )
            for name in ("p", "q")
        )
        current = spec_of(before).to_json()
        require_same_spec(current, spec_of(after), "db.t", schema=schema_of(after))

    @pytest.mark.parametrize("partitions", [[], ["q"], ["p", "q"], ["q", "p"]])
    def test_other_partition_columns_are_refused(self, partitions: list[str]) -> None:
        columns = column("a", "long"), column("p", "date"), column("q", "string")
        current = spec_of(metadata_of(*columns, partitions=["p"])).to_json()
        after = metadata_of(*columns, partitions=partitions)
        with pytest.raises(UnsupportedFeatureError, match="another way than the target") as caught:
            require_same_spec(current, spec_of(after), "db.t", schema=schema_of(after))
        assert "new target" in str(caught.value)

    def test_a_new_column_that_is_called_like_a_partition_field_is_refused(self) -> None:
        before = mapped(1, "p", "date"), mapped(2, "a", "long")
        current = spec_of(metadata_of(*before, partitions=["p"], mode="name")).to_json()
        columns = mapped(1, "q", "date"), mapped(2, "a", "long"), mapped(3, "p", "long")
        after = metadata_of(*columns, partitions=["q"], mode="name")
        with pytest.raises(UnsupportedFeatureError, match="made from another column"):
            require_same_spec(current, spec_of(after), "db.t", schema=schema_of(after))

    def test_a_field_in_a_struct_may_be_called_so(self) -> None:
        columns = column("p", "date"), column("s", struct(column("p", "long")))
        metadata = metadata_of(*columns, partitions=["p"])
        spec = spec_of(metadata)
        require_same_spec(spec.to_json(), spec, "db.t", schema=schema_of(metadata))
