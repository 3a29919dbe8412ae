"""Every kind of damage of files and vectors, made by hand, is found; sound tables are clean."""

from __future__ import annotations

import json
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from delvec.vector import Bitmap
from delvec.vector.frame import encode_frame
from tests.delta.builder import TableBuilder, removed, small_table
from tests.delta.check.checks import INLINE, PADDED, checked, found, odd_vector, opened, table_with
from tests.delta.golden import FUTURE, TABLES
from tests.delta.log.damages import CASES, rewritten, with_vector
from tests.delta.vacuum.aging import days_ago

PART = "part-0.parquet"
# Cases whose errors say other words than a reader's, or that a reader alone refuses.
OTHER_WORDS = dict.fromkeys(
    (
        "a_file_that_was_removed_without_its_vector",
        *("a_file_under_two_spellings", "an_absolute_spelling_of_a_file_of_the_table"),
    ),
    "live 2 times",
)
ELSEWHERE = {"a_path_on_another_kind_of_store", "an_absolute_vector_on_another_kind_of_store"}


def test_a_sound_table_has_no_findings(tmp_path: Path) -> None:
    small_table(tmp_path)
    told: list[tuple[str, int, int]] = []
    report = checked(tmp_path, repair=True, on_progress=lambda *facts: told.append(facts))
    assert (report.ok, report.findings, report.repairs) == (True, (), ())
    assert (report.version, report.is_repaired) == (2, False)
    assert (report.data_files, report.vectors, report.vector_files) == (2, 2, 1)
    assert (report.log_files, report.sampled_files, report.listed_files) == (3, 2, 3)
    assert "nothing is wrong" in str(report)
    document = json.loads(json.dumps(report.to_json()))
    assert (document["ok"], document["findings"], document["repairs"]) == (True, [], [])
    assert next(iter(document)) == "table"
    assert {("data files", 2, 2), ("deletion vectors", 2, 2)} <= set(told)


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_the_delta_project_are_sound(golden: Path, name: str) -> None:
    report = checked(golden / name / "delta")
    hint = ["wrong-hint"] if name == "corrupted-last-checkpoint-kernel" else []
    assert [each.kind for each in report.findings if each.severity != "info"] == hint
    assert (report.errors, report.vectors) == (0, TABLES[name][1])


def test_a_table_from_the_future_is_refused(golden: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="99"):
        checked(golden / FUTURE / "delta")


def test_there_must_be_a_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        checked(tmp_path)
    small_table(tmp_path)
    with pytest.raises(InvalidArgumentError, match="sample"):
        checked(tmp_path, sample=-1)


@pytest.mark.parametrize("name", CASES)
def test_every_damage_is_a_finding_that_names_what_and_where(tmp_path: Path, name: str) -> None:
    expected = CASES[name](tmp_path / "table")
    if expected.error is UnsupportedFeatureError:
        with pytest.raises(UnsupportedFeatureError):
            checked(tmp_path / "table")
        return
    report = checked(tmp_path / "table")
    assert report.ok == (name in ELSEWHERE)
    assert report.errors + report.warnings > 0
    other = {"more than once": OTHER_WORDS.get(name, "more than once")}
    assert all(other.get(word, word) in str(report) for word in expected.words)


def test_a_data_file_that_is_gone_is_not_repaired(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    (tmp_path / "part-1.parquet").unlink()
    before = sorted(table.log.iterdir())
    report = checked(tmp_path, repair=True)
    assert found(report) == [("error", "missing-file", "part-1.parquet")]
    assert (report.repairs, report.is_repaired, sorted(table.log.iterdir())) == ((), False, before)
    assert "restore" in str(report.findings[0].hint)


def test_a_data_file_of_another_size(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    data = (tmp_path / PART).read_bytes()
    for other in (data + b"x", b""):
        (tmp_path / PART).write_bytes(other)
        assert found(checked(tmp_path)) == [("error", "wrong-size", PART)]

    def empty(action: dict[str, Any]) -> dict[str, Any]:
        return {"add": action["add"] | {"size": 0}} if PART in str(action.get("add")) else action

    rewritten(table.commit_path(2), empty)
    assert found(checked(tmp_path)) == [("error", "unreadable-file", PART)]


FOOTERS: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[:-8] + b"no footr",
    "lying": lambda data: data[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1",
    "lying a little": lambda data: data[:-8] + struct.pack("<I", 20) + b"PAR1",
    "of zeros": lambda data: bytes(len(data) - 4) + b"PAR1",
}


@pytest.mark.parametrize("damage", FOOTERS)
def test_a_footer_that_is_damaged_or_lies(tmp_path: Path, damage: str) -> None:
    small_table(tmp_path)
    path = tmp_path / PART
    path.write_bytes(FOOTERS[damage](path.read_bytes()))
    report, peak = traced(tmp_path)
    assert found(report) == [("error", "unreadable-file", PART)]
    assert peak < 16 << 20


def traced(root: Path) -> tuple[Any, int]:
    """Check a table; give the report and the most memory that it took at once."""
    checked(root)  # what is imported at the first use
    tracemalloc.start()
    try:
        return checked(root), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_wrong_row_count(tmp_path: Path) -> None:
    table_with(tmp_path, [0, 9], stats={"numRecords": 8, "tightBounds": False})
    [finding] = checked(tmp_path).findings
    assert (finding.severity, finding.kind, finding.path) == ("error", "wrong-row-count", PART)
    assert "expected 10 rows" in finding.message
    assert "numRecords 8" in finding.message


def test_a_wrong_partition_value(tmp_path: Path) -> None:
    fields = {"id": "long", "day": "date"}
    table = TableBuilder.made(tmp_path, fields=fields, partition_columns=["day"])
    days = ("2024-01-31", None, "soon", "soon")
    table.add(
        *(table.write_file(f"{n}.parquet", {"id": [1]}, {"day": day}) for n, day in enumerate(days))
    )
    [finding] = checked(tmp_path).findings
    assert (finding.kind, finding.path) == ("wrong-partition-value", "2.parquet")
    assert "'soon'" in finding.message


def test_files_outside_of_the_table_are_looked_for(tmp_path: Path) -> None:
    table, other = TableBuilder.made(tmp_path / "t"), TableBuilder(tmp_path / "other")
    for number in range(2):
        add = other.write_file(f"{number}.parquet", {"id": [1, 2]})
        table.add(add | {"path": (other.root / add["path"]).as_uri()})
    assert checked(table.root).findings == ()
    (other.root / "1.parquet").unlink()
    assert found(checked(table.root)) == [("error", "missing-file", str(other.root / "1.parquet"))]


@pytest.mark.parametrize(
    ("vector", "kind"), [(INLINE, "inline-vector"), (PADDED, "hash-padded-vector")]
)
def test_vectors_in_the_log(tmp_path: Path, vector: dict[str, Any], kind: str) -> None:
    table_with(tmp_path, vector)
    report = checked(tmp_path)
    assert found(report) == [("warning", kind, PART)]
    assert [each.kind for each in report.repairs] == ["rewrite-vector"]
    assert (report.ok, report.is_repaired, report.vectors) == (True, False, 1)
    assert "nothing was changed" in str(report)


EMPTY = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}
# Vectors, what the log says of the rows, and the findings.
VECTORS: dict[str, tuple[Any, Any, set[tuple[str, str]]]] = {
    "of all rows": (list(range(10)), None, {("warning", "all-rows-deleted")}),
    "of no rows": (EMPTY, None, {("warning", "empty-vector"), ("warning", "inline-vector")}),
    "without a row count": ([3], {}, {("error", "missing-row-count"), ("info", "tight-bounds")}),
    "absolute inside the table": ("absolute", None, {("warning", "absolute-vector")}),
    "without an offset": ("no offset", None, {("warning", "vector-without-offset")}),
}


@pytest.mark.parametrize("name", VECTORS)
def test_odd_vectors(tmp_path: Path, name: str) -> None:
    vector, stats, expected = VECTORS[name]
    table = TableBuilder(tmp_path)
    if isinstance(vector, str):
        vector = odd_vector(table, vector)
    table_with(tmp_path, vector, stats=stats, table=table)
    assert {(severity, kind) for severity, kind, _ in found(checked(tmp_path))} == expected


def test_an_absolute_vector_of_another_table_is_no_finding(tmp_path: Path) -> None:
    other = TableBuilder.made(tmp_path / "other")
    table_with(tmp_path / "t", odd_vector(other, "absolute"))
    assert checked(tmp_path / "t").findings == ()
    other.vector_path().unlink()
    assert found(checked(tmp_path / "t")) == [("error", "missing-vector", PART)]


def test_a_vector_in_the_old_layout(tmp_path: Path) -> None:
    table = table_with(tmp_path, [3])
    payload = encode_frame(Bitmap([3]))[4:-4]
    bitmap = payload[16:]  # behind the magic number, the count and the key
    native = bytes.fromhex("d0d33964") + struct.pack("<II", 1, len(bitmap)) + bitmap
    frame = struct.pack(">I", len(native)) + native + struct.pack(">I", crc32(native))
    table.vector_path().write_bytes(b"\1" + frame)
    rewritten(table.commit_path(2), with_vector(PART, sizeInBytes=len(native)))
    assert found(checked(tmp_path)) == [("warning", "native-vector", PART)]


def test_a_vector_that_two_files_have(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    first = adds[0]["deletionVector"]
    rewritten(table.commit_path(2), with_vector("part-1.parquet", **first))
    assert found(checked(tmp_path)) == [("warning", "shared-vector", "part-1.parquet")]


def test_tight_bounds_beside_a_vector_are_mentioned(tmp_path: Path) -> None:
    table = table_with(tmp_path, [3], stats={"numRecords": 10})
    assert found(checked(tmp_path)) == [("info", "tight-bounds", PART)]
    computed = {"commitInfo": {"operation": "COMPUTE STATS"}}
    rewritten(table.commit_path(2), lambda each: computed if "commitInfo" in each else each)
    assert checked(tmp_path).findings == ()


def test_a_tombstone_with_a_vector_in_the_log(tmp_path: Path) -> None:
    table = table_with(tmp_path, INLINE)
    gone = {"path": PART, "deletionVector": INLINE, "dataChange": True}
    table.commit({"remove": gone | {"deletionTimestamp": days_ago(1)}})
    [finding] = checked(tmp_path).findings
    assert (finding.severity, finding.kind) == ("warning", "inline-tombstone")
    assert "UTC" in str(finding.hint)
    for old in ({}, {"deletionTimestamp": days_ago(8)}):
        table.commit({"remove": gone | old})
        assert checked(tmp_path).findings == ()


@pytest.mark.parametrize(
    "forged", [{"sizeInBytes": 2**31 - 1}, {"offset": 2**31 - 1}, {"cardinality": 2**62}]
)
def test_forged_vectors_allocate_nothing(tmp_path: Path, forged: dict[str, int]) -> None:
    rewritten(table_with(tmp_path, [3]).commit_path(2), with_vector(PART, **forged))
    report, peak = traced(tmp_path)
    assert [(severity, path) for severity, _, path in found(report)] == [("error", PART)]
    assert peak < 16 << 20


def test_many_vectors_are_read_by_few_requests(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    vectors = [v for _ in range(3) for v in table.write_vectors(*([each] for each in range(20)))]
    told = {"stats": json.dumps({"numRecords": 30, "tightBounds": False})}
    table.add(
        *(
            table.write_file(f"{n}.parquet", {"id": range(30)}) | told | {"deletionVector": vector}
            for n, vector in enumerate(vectors)
        )
    )
    handle = opened(tmp_path)
    report = handle.check(sample=0)
    assert (report.findings, report.vectors, report.vector_files) == ((), 60, 3)
    # Footers, files of vectors, and less than ten files of the log.
    assert handle.storage.requests.gets < len(vectors) + 3 + 10


def test_a_disk_that_does_not_tell_cases_apart_has_no_orphans_by_case(tmp_path: Path) -> None:
    small_table(tmp_path)
    (tmp_path / PART.upper()).write_bytes(b"as such a disk may list it")
    assert checked(tmp_path).orphan_files == 1
    with patch.object(sys, "platform", "darwin"):
        assert checked(tmp_path).orphan_files == 0


def test_orphan_files_are_told_with_their_bytes(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    (tmp_path / "orphan.parquet").write_bytes(b"0123456789")
    table.write_vectors([1], prefix="ab")
    table.write_file("_hidden/x.parquet", {"id": [1]})
    small_table(tmp_path / "inner")
    table.commit({"remove": removed(adds[0])})  # its files are kept for older versions
    report = checked(tmp_path)
    files = {each.kind: each for each in report.findings}
    assert set(files) == {"orphan-data-file", "orphan-vector-file"}
    assert files["orphan-data-file"].path == "orphan.parquet"
    assert "10 B" in files["orphan-data-file"].message
    assert (report.ok, report.orphan_files, report.warnings) == (True, 2, 0)
    [vectors] = tmp_path.glob("ab/*.bin")
    assert report.orphan_bytes == 10 + vectors.stat().st_size


def test_findings_are_counted_and_some_of_each_kind_shown(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    add = table.write_file("a.parquet", {"id": [1]})
    gone = [{"add": add | {"path": f"{number}.parquet"}} for number in range(1200)]
    table.commit({"add": add}, *gone)
    report = checked(tmp_path)
    assert (report.errors, len(report.findings), report.data_files) == (1200, 1000, 1201)
    assert str(report).count("the data file is gone") == 5
    assert "… and 1,195 more" in str(report)


def test_rows_that_cannot_be_read_are_found_in_the_sample(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    options: dict[str, Any] = {"write_page_checksum": True, "compression": "none"}
    add = table.write_file("a.parquet", {"id": range(5000)}, **options)
    stats = {"numRecords": 5000, "minValues": {"id": 0}, "nullCount": {"id": 0}}
    table.add(add | {"stats": json.dumps(stats)})
    path = tmp_path / "a.parquet"
    assert checked(tmp_path).findings == ()
    start = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 200] ^= 0xFF
    path.write_bytes(data)
    assert found(checked(tmp_path)) == [("error", "unreadable-file", "a.parquet")]
    assert checked(tmp_path, sample=0).findings == ()


SEEDS = [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 600))]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_damage_of_log_and_vectors_makes_a_check_fail(tmp_path: Path, seed: int) -> None:
    """The check ends with a report, or refuses a feature that it does not know.

    Data files are spared: Arrow itself ends the process over some damaged footers.
    """
    random, root = Random(seed), tmp_path
    table, adds = small_table(root)
    table.checkpoint(adds)
    table.write_hint()
    table.commit({"remove": removed(adds[0])}, {"add": adds[1] | {"modificationTime": 1}})
    files = [path for path in sorted(root.rglob("*")) if path.suffix != ".parquet"]
    files += table.log.glob("*.parquet")
    for path in random.sample([path for path in files if path.is_file()], 2):
        if path.suffix == ".json" and random.random() < 0.6:
            change_a_value(path, random)
            continue
        data = bytearray(path.read_bytes())
        for _ in range(random.choice([1, 4])):
            data[random.randrange(len(data))] = random.randrange(256)
        path.write_bytes(data[: random.choice([len(data), random.randrange(len(data))])])
    try:
        report = checked(root, repair=random.random() < 0.3)
    except (UnsupportedFeatureError, TableNotFoundError):
        return
    assert json.dumps(report.to_json())
    assert str(report)


def change_a_value(path: Path, random: Random) -> None:
    """Change one value, somewhere in the actions of a commit."""
    lines = path.read_text().splitlines()
    number = random.randrange(len(lines))
    action = json.loads(lines[number])
    places: list[tuple[Any, Any]] = []
    waiting = [action]
    while waiting:
        inside = waiting.pop()
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        places += [(inside, key) for key in keys]
        waiting += [inside[key] for key in keys if isinstance(inside[key], (dict, list))]
    inside, key = random.choice(places)
    inside[key] = random.choice([None, -1, 2**63, 1e300, "", "x", "../x", [], {}, True])
    lines[number] = json.dumps(action)
    path.write_text("\n".join(lines) + "\n")
