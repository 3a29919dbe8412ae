"""Logs that contradict themselves or the rows: holes, checkpoints, protocols, statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.builder import (
    MAPPED,
    Action,
    TableBuilder,
    field_of,
    legacy,
    mapped_field,
    protocol_of,
    removed,
    small_table,
    struct_of,
)
from tests.delta.check.checks import checked, found, table_with
from tests.delta.log_files import commits

Names = Sequence[str] | None
LOG = "_delta_log"
HINT = f"{LOG}/_last_checkpoint"
PART = "part-0.parquet"


def commit_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def checkpointed(root: Path, **changes: Any) -> tuple[TableBuilder, list[dict[str, Any]]]:  # noqa: ANN401
    """Make the small table with a checkpoint of its newest version, whose adds can be changed."""
    table, adds = small_table(root)
    table.checkpoint([{**add, **changes} for add in adds])
    table.write_hint()
    return table, adds


def test_commits_that_are_damaged_or_missing_before_the_checkpoint(tmp_path: Path) -> None:
    table, _ = checkpointed(tmp_path)
    table.commit_path(1).write_text("{")
    assert found(checked(tmp_path)) == [("warning", "damaged-history", commit_name(1))]
    table.drop_commits(1)
    assert found(checked(tmp_path)) == [("warning", "missing-commit", commit_name(1))]
    table.drop_commits(0)  # as a clean-up of the log leaves it
    assert checked(tmp_path).findings == ()


def test_all_commits_that_are_damaged_are_named(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    table.commit_path(1).write_text("{")
    table.commit_path(2).write_text("")
    report = checked(tmp_path)
    assert [each.path for each in report.findings] == [commit_name(2), commit_name(1)]
    assert (report.ok, report.version, report.repairs) == (False, None, ())


def test_parts_of_checkpoints_that_are_left_over(tmp_path: Path) -> None:
    table, adds = checkpointed(tmp_path)
    table.commit()
    _, second = table.checkpoint(adds, parts=2)
    second.unlink()
    (table.log / f"{1:020d}.checkpoint.parquet").write_bytes(b"")
    kinds = [(severity, kind) for severity, kind, _ in found(checked(tmp_path))]
    assert kinds == [("warning", "incomplete-checkpoint")] * 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 7}', '{"version": true}'])
def test_a_hint_that_is_wrong(tmp_path: Path, text: str) -> None:
    table, _ = checkpointed(tmp_path)
    table.write_hint(text)
    assert found(checked(tmp_path)) == [("warning", "wrong-hint", HINT)]
    report = checked(tmp_path, repair=True)
    assert ([each.kind for each in report.repairs], report.findings) == (["write-hint"], ())
    assert (report.is_repaired, report.repaired_version, report.version) == (True, None, 2)
    assert json.loads((tmp_path / HINT).read_text()) == {"version": 2, "size": 4}


@pytest.mark.parametrize("kind", ["parts", "json", "parquet"])
def test_a_hint_that_is_missing(tmp_path: Path, kind: str) -> None:
    table, adds = small_table(tmp_path)
    assert checked(tmp_path).findings == ()  # without a checkpoint there is no hint
    if kind == "parts":
        table.checkpoint(adds, parts=3)
    else:
        table.protocol = protocol_of("deletionVectors", "v2Checkpoint")
        table.commit({"protocol": table.protocol})
        table.checkpoint_with_sidecars(adds, as_json=kind == "json")
    assert found(checked(tmp_path)) == [("info", "missing-hint", HINT)]
    assert checked(tmp_path, repair=True).findings == ()
    of_parts = {"version": 2, "size": 4, "parts": 3}
    expected = of_parts if kind == "parts" else {"version": 3, "size": 7}
    assert (json.loads((tmp_path / HINT).read_text()), table.handle.count()) == (expected, 16)


def test_a_file_that_is_live_twice_tells_by_which_commits(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    [again] = table.write_vectors([0, 1, 9], prefix="ab")
    plain = {name: value for name, value in adds[0].items() if name != "deletionVector"}
    table.commit({"remove": removed(plain)}, {"add": adds[0] | {"deletionVector": again}})
    report = checked(tmp_path, repair=True)
    [finding] = report.findings
    assert (finding.severity, finding.kind, finding.path) == ("error", "live-twice", PART)
    for words in ("a vector of 3 rows by 00000000000000000003.json", "a vector of 2 rows"):
        assert words in finding.message
    # Which of the rows are meant to be deleted is not certain.
    assert (report.repairs, report.version) == ((), 3)


def test_a_remove_that_does_not_name_the_vector(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    table.commit({"remove": {"path": "part-1.parquet", "dataChange": True}})
    [finding] = checked(tmp_path).findings
    assert (finding.kind, finding.path) == ("remove-without-vector", "part-1.parquet")
    assert commit_name(3) in finding.message
    table.commit({"remove": removed(adds[1])})
    assert checked(tmp_path).findings == ()


def test_a_file_that_one_commit_adds_and_removes(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    table.commit(*({"add": add} for add in adds), {"remove": removed(adds[0])})
    assert found(checked(tmp_path)) == [("error", "added-and-removed", PART)]


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (slice(1), "lacks 1 live entry"),
        (slice(None), "its schema, partition columns or properties differ"),
    ],
)
def test_a_checkpoint_that_lost_something(tmp_path: Path, kept: slice, words: str) -> None:
    table, adds = small_table(tmp_path)
    if kept.stop is None:
        table.properties = {"delta.logRetentionDuration": "interval 1 day"}
    table.checkpoint(adds[kept])
    table.write_hint()
    report = checked(tmp_path)
    assert found(report) == [("error", "wrong-checkpoint", f"{LOG}/{2:020d}.checkpoint.parquet")]
    assert words in report.findings[0].message


def test_a_checkpoint_with_a_file_that_was_removed(tmp_path: Path) -> None:
    """As by a writer that knows files by their paths alone: deleted rows are back."""
    table, adds = small_table(tmp_path)
    plain = {name: value for name, value in adds[0].items() if name != "deletionVector"}
    table.checkpoint([plain, adds[1]])
    table.write_hint()
    report = checked(tmp_path)
    assert [each.kind for each in report.findings] == ["wrong-checkpoint"] * 2
    assert report.checkpoints == 1


def test_a_checkpoint_is_compared_from_the_one_before(tmp_path: Path) -> None:
    table, adds = checkpointed(tmp_path)
    table.drop_commits(0, 1)
    more = table.append("more.parquet", {"id": [1]})
    table.checkpoint(adds)
    table.write_hint()
    assert next(each.kind for each in checked(tmp_path).findings) == "wrong-checkpoint"
    table.checkpoint([*adds, more])
    report = checked(tmp_path)
    assert (report.findings, report.checkpoints) == ((), 1)


def crc(table: TableBuilder, adds: list[dict[str, Any]], **changes: Any) -> None:  # noqa: ANN401
    counts = {"numFiles": 2, "numDeletedRecordsOpt": 4, "numDeletionVectorsOpt": 2}
    value = {
        "tableSizeBytes": sum(add["size"] for add in adds),
        **(counts | {"numMetadata": 1, "numProtocol": 1}),
        "metadata": table.metadata(),
        "protocol": table.protocol,
        "allFiles": adds,
    }
    (table.log / f"{table.version:020d}.crc").write_text(json.dumps(value | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numFiles": 3}, "numFiles is 3, expected 2"),
        ({"tableSizeBytes": 1}, "tableSizeBytes is 1"),
        ({"numDeletedRecordsOpt": 5}, "numDeletedRecordsOpt is 5, expected 4"),
        ({"numDeletionVectorsOpt": 1}, "numDeletionVectorsOpt is 1"),
        ({"protocol": legacy(1, 2)}, "another protocol"),
        ({"metadata": {"schemaString": '{"type":"struct","fields":[]}'}}, "another schema"),
        ({"allFiles": []}, "lists other files"),
        ({"protocol": 7}, "cannot be read"),
    ],
)
def test_a_checksum_file_that_is_wrong(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    table, adds = small_table(tmp_path)
    crc(table, adds)
    assert checked(tmp_path).findings == ()
    crc(table, adds, **changes)
    [finding] = checked(tmp_path).findings
    assert (finding.severity, finding.kind) == ("error", "wrong-checksum")
    assert words in finding.message
    (table.log / f"{table.version:020d}.crc").write_text("{")
    assert checked(tmp_path).findings == ()  # readers ignore it


@pytest.mark.parametrize(
    ("protocol", "properties", "finding", "repairs"),
    [
        (legacy(1, 2), {}, ("error", "vectors-without-feature", ""), ["add-feature"]),
        (
            legacy(1, 7) | {"writerFeatures": ["deletionVectors"]},
            *({}, ("error", "vectors-without-feature", ""), ["add-feature"]),
        ),
        (
            protocol_of("deletionVectors"),
            {"delta.compatibility.symlinkFormatManifest.enabled": "true"},
            *(("warning", "vectors-not-allowed", ""), []),
        ),
    ],
)
def test_vectors_beside_what_does_not_know_them(
    tmp_path: Path, protocol: Action, properties: Action, finding: Names, repairs: Names
) -> None:
    table = TableBuilder(tmp_path, protocol=protocol)
    table.properties = properties or table.properties
    table_with(tmp_path, [3], table=table)
    report = checked(tmp_path)
    assert (found(report), [each.kind for each in report.repairs]) == ([finding], repairs)


@pytest.mark.parametrize(
    ("kind", "properties", "finding"),
    [
        ("timestamp_ntz", {}, ("error", "timestampNtz")),
        ("variant", {}, ("error", "variantType")),
        ("long", {"delta.enableRowTracking": "true"}, ("warning", "rowTracking")),
        ("long", {"delta.enableDeletionVectors": "true"}, ("warning", "deletionVectors")),
        ("long", {"delta.constraints.c": "id > 0"}, ("warning", "checkConstraints")),
        ("long", {"delta.checkpointPolicy": "v2"}, ("warning", "v2Checkpoint")),
    ],
)
def test_features_in_use_that_the_protocol_lacks(
    tmp_path: Path, kind: str, properties: dict[str, str], finding: tuple[str, str]
) -> None:
    severity, feature = finding
    protocol = legacy(1, 2)
    TableBuilder.made(tmp_path, protocol=protocol, fields={"id": kind}, properties=properties)
    findings = checked(tmp_path).findings
    assert {each.kind for each in findings} == {"missing-feature"}
    [named] = [each for each in findings if f"uses {feature}," in each.message]
    assert named.severity == severity


@pytest.mark.parametrize("inner", [1, 3])
def test_column_mapping_without_the_feature_and_with_mistakes(tmp_path: Path, inner: int) -> None:
    properties = {**MAPPED, "delta.columnMapping.maxColumnId": "2"}
    struct = struct_of(mapped_field("b", "long", inner, "col-b"))
    fields = [mapped_field("a", struct, 1, "col-a"), mapped_field("c", "long", 2, "col-c")]
    TableBuilder.made(tmp_path, protocol=legacy(1, 5), properties=properties, fields=fields)
    missing = ("error", "missing-feature", "")
    assert found(checked(tmp_path)) == [missing, ("warning", "column-mapping", "")]


@pytest.mark.parametrize(
    ("versions", "readers", "writers", "words"),
    [
        ((1, 7), ["timestampNtz"], ["timestampNtz"], "lists reader features"),
        ((1, 3), None, ["appendOnly"], "lists writer features"),
        ((3, 5), [], None, "needs minWriterVersion 7"),
        ((3, 7), ["timestampNtz"], [], "listed for readers and not for writers"),
    ],
)
def test_protocols_with_contradictions(
    tmp_path: Path, versions: tuple[int, int], readers: Names, writers: Names, words: str
) -> None:
    lists = {"readerFeatures": readers, "writerFeatures": writers}
    named = {name: each for name, each in lists.items() if each is not None}
    TableBuilder.made(tmp_path, protocol=legacy(*versions) | named, properties={})
    [finding] = checked(tmp_path).findings
    assert (finding.severity, finding.kind) == ("warning", "protocol-lists")
    assert words in finding.message


def tracked(root: Path, *ids: int | None, mark: int) -> None:
    protocol = legacy(1, 7) | {"writerFeatures": ["rowTracking", "domainMetadata"]}
    properties = {"delta.enableRowTracking": "true"}
    table = TableBuilder.made(root, protocol=protocol, properties=properties)
    adds = []
    for number, base in enumerate(ids):
        add = table.write_file(f"{number}.parquet", {"id": range(10)})
        adds.append({"add": add | ({} if base is None else {"baseRowId": base})})
    configuration = json.dumps({"rowIdHighWaterMark": mark})
    domain = {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}
    table.commit(*adds, {"domainMetadata": domain})


@pytest.mark.parametrize(
    ("ids", "mark", "words"),
    [
        ((0, 10), 19, None),
        ((0, None), 19, "no base row id"),
        ((0, 9), 19, "the same row ids as rows of 1.parquet"),
        ((0, 10), 18, "the id 19, and the high-water mark is 18"),
        ((0, 10), -7, "high-water mark"),
    ],
)
def test_row_ids(tmp_path: Path, ids: tuple[int | None, ...], mark: int, words: str | None) -> None:
    tracked(tmp_path, *ids, mark=mark)
    findings = checked(tmp_path).findings
    expected = [("error", "row-ids")] if words else []
    assert [(finding.severity, finding.kind) for finding in findings] == expected
    assert not words or words in findings[0].message


def test_a_schema_that_cannot_be_read(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    table.redefine(schemaString="{")
    findings = checked(tmp_path).findings
    assert [(each.severity, each.kind) for each in findings] == [("error", "damaged-log")]


MOMENT = datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=timezone.utc)
# A type, its values, the bounds of these, and bounds that hide a row.
VALUES: dict[str, tuple[pa.DataType, list[Any], tuple[Any, Any], tuple[Any, Any]]] = {
    "integer": (pa.int32(), [1, 5, 9], (1, 9), (2, 8)),
    "double": (pa.float64(), [1.5, 2.5, float("nan")], (1.5, 2.5), (1.6, 2.4)),
    "string": (pa.string(), ["a", "b", "\U0001f600"], ("a", "\U0001f600"), ("aa", "b")),
    "date": (
        *(pa.date32(), [date(2024, 1, day) for day in (1, 2, 3)]),
        *(("2024-01-01", "2024-01-03"), ("2024-01-02", "2024-01-02")),
    ),
    "timestamp": (
        *(pa.timestamp("us", "UTC"), [MOMENT] * 3, ("2024-01-31T12:00:00.123Z",) * 2),
        ("2024-01-31T12:00:01.000Z", "2024-01-31T12:00:00.100Z"),
    ),
    "decimal(5,2)": (
        *(pa.decimal128(5, 2), [Decimal("1.10"), Decimal("2.20"), None]),
        *((1.10, 2.20), (1.11, 2.19)),
    ),
}


def write(root: Path, kind: str, low: Any, high: Any, nulls: int | None = None) -> TableBuilder:  # noqa: ANN401
    table = TableBuilder.made(root, fields={"v": kind})
    arrow, values, *_ = VALUES[kind]
    stats = {"numRecords": 3, "minValues": {"v": low}, "maxValues": {"v": high}}
    if nulls is not None:
        stats["nullCount"] = {"v": nulls}
    add = table.write_file("a.parquet", {"v": pa.array(values, arrow)})
    table.add(add | {"stats": json.dumps(stats)})
    return table


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("side", ["minimum", "maximum", None])
def test_bounds_that_hide_a_row_are_an_error(tmp_path: Path, name: str, side: str | None) -> None:
    _, _, (low, high), (too_high, too_low) = VALUES[name]
    low, high = too_high if side == "minimum" else low, too_low if side == "maximum" else high
    write(tmp_path, name, low, high)
    report = checked(tmp_path)
    if side is None:
        assert (report.findings, report.sampled_files) == ((), 1)
        return
    assert found(report) == [("error", "wrong-statistics", "a.parquet")]
    assert f"{side} of v" in report.findings[0].message
    assert [each.kind for each in report.repairs] == ["replace-statistics"]
    repaired = checked(tmp_path, repair=True)
    assert (repaired.findings, repaired.repaired_version) == ((), 2)


@pytest.mark.parametrize(
    ("name", "nulls", "words"),
    [
        ("decimal(5,2)", 0, "nullCount of v is 0, and 1 rows are null"),
        ("decimal(5,2)", 3, "nullCount of v is that of all rows, and 2 rows are not null"),
        ("integer", 3, "3 rows are not null"),
        ("decimal(5,2)", 2, None),
        ("integer", 0, None),
    ],
)
def test_null_counts_hiding_rows(tmp_path: Path, name: str, nulls: int, words: str | None) -> None:
    write(tmp_path, name, *VALUES[name][2], nulls)
    findings = checked(tmp_path).findings
    assert [each.kind for each in findings] == (["wrong-statistics"] if words else [])
    assert not words or words in findings[0].message


def test_deleted_rows_may_be_outside_of_tight_bounds(tmp_path: Path) -> None:
    table = write(tmp_path, "integer", 5, 9)
    assert found(checked(tmp_path)) == [("error", "wrong-statistics", "a.parquet")]
    [add] = [each["add"] for each in commits(tmp_path)[1] if "add" in each]
    table.delete_rows(add, [0])
    assert checked(tmp_path).findings == ()


def test_fields_of_structs_and_columns_that_the_file_lacks(tmp_path: Path) -> None:
    fields = {"s": struct_of(field_of("x", "long")), "new": "long"}
    table = TableBuilder.made(tmp_path, fields=fields)
    add = table.write_file("a.parquet", {"s": pa.array([{"x": 1}, {"x": None}, None])})
    bounds = {"minValues": {"s": {"x": 1}}, "maxValues": {"s": {"x": 1}}}
    for nulls, expected in ((2, []), (0, ["wrong-statistics"])):
        stats = {"numRecords": 3, **bounds, "nullCount": {"s": {"x": nulls}, "new": 3}}
        table.add(add | {"stats": json.dumps(stats)})
        assert [each.kind for each in checked(tmp_path).findings] == expected


def test_a_sample_is_spread_and_holds_files_with_vectors(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    stats = {"numRecords": 2, "minValues": {"id": 1}, "tightBounds": False}
    right = {"stats": json.dumps(stats)}
    adds = [table.write_file(f"{n}.parquet", {"id": [1, 2]}) | right for n in range(40)]
    [vector] = table.write_vectors([0])
    adds[17] |= {"deletionVector": vector, "stats": json.dumps(stats | {"minValues": {"id": 3}})}
    table.add(*adds)
    report, wrong = checked(tmp_path, sample=4), [("error", "wrong-statistics", "17.parquet")]
    assert (report.sampled_files, found(report)) == (4, wrong)
    assert checked(tmp_path, sample=1000).sampled_files == 40
    assert checked(tmp_path, sample=0).ok


def test_statistics_that_say_nothing_are_no_finding(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    add = table.write_file("a.parquet", {"id": [1]})
    del add["stats"]
    other = table.write_file("b.parquet", {"id": [1]}) | {"stats": "{"}
    table.commit({"add": add}, {"add": other})
    assert checked(tmp_path).findings == ()
