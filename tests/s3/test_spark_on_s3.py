"""Spark, Delta and Iceberg tables on an S3 server on loopback, with conditional puts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from delvec import DeltaTable
from tests.delta.builder import TableBuilder
from tests.s3.programs import CONTENDED, CROSSING, FILES
from tests.s3.server import S3Server
from tests.s3.session import Place, run, started

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.slow]

PROCESSES = 8
ROUNDS = 3


@pytest.fixture
def place(s3: S3Server, tmp_path: Path) -> Place:
    return Place.of(s3, tmp_path)


def test_a_delta_table_on_s3_is_written_deleted_from_and_read_by_few_requests(
    place: Place, s3: S3Server
) -> None:
    found = run("smoke", place, str(s3.log))
    assert found["deleted"] == [100, FILES, 100]
    assert found["rows"] == [800, 800, 800]
    whole = sum(range(1000))
    assert found["sums"] == [whole, whole - sum(range(3, 1000, 10))]
    # What the design of deletion vectors asks for: at most one GET more for each file with a
    # vector, and no more PUTs than rewriting the files takes.
    requests = {name: Counter(counts) for name, counts in found["requests"].items()}
    more = requests["read through vectors"]["s3_GetObject"] - requests["read"]["s3_GetObject"]
    assert more <= FILES, requests
    assert puts(requests["delete"]) == 2, requests  # all vectors in one file, and the commit
    assert puts(requests["delete"]) <= puts(requests["delete by rewriting"]), requests
    log = s3.folder / "lake" / "smoke" / "_delta_log"
    names = [path.name for path in sorted(log.glob("*.json"))]
    assert names == [f"{version:020}.json" for version in range(4)]


def puts(requests: Counter[str]) -> int:
    return sum(count for name, count in requests.items() if name.startswith(("s3_Put", "s3_Copy")))


def test_a_file_in_another_bucket_is_read_only_if_the_session_names_that(
    place: Place, s3: S3Server, tmp_path: Path
) -> None:
    s3.create_bucket("other")
    builder = TableBuilder(tmp_path / "local")
    builder.create()
    add = builder.write_file("a.parquet", {"id": range(10)})
    [vector] = builder.write_vectors([3])
    name = builder.vector_path().name
    vector |= {"storageType": "p", "pathOrInlineDv": f"s3a://other/{name}"}
    builder.commit({"add": add | {"path": "s3a://other/a.parquet", "deletionVector": vector}})
    s3.upload(builder.root, CROSSING)
    s3.upload(builder.root, "s3://other")
    before = s3.log.read_text().count("/other/")
    found = run("crossing", place)
    assert found == {"refused": [True] * 3, "rows": [9, 9, 9]}
    assert s3.log.read_text().count("/other/") > before


def test_the_life_of_a_table_on_s3(place: Place) -> None:
    found = run("end_to_end", place)
    delta, live = found["delta"], [n for n in range(200) if n % 10 != 3]
    live = sorted({*live, *range(190, 220)})
    assert (delta["deleted"], delta["updated"], delta["merged"]) == (20, 9, [9, 21])
    changes = {"delete": 20, "update_preimage": 18, "update_postimage": 18, "insert": 21}
    assert delta["changes"] == changes
    same = ("ids", "source", "arrow", "optimized", "restored", "after_vacuum")
    assert {name: delta[name] == live for name in same} == dict.fromkeys(same, True)
    assert delta["purged"] == [n for n in live if n != 7]
    assert (delta["vectors_left"], delta["findings"]) == (0, [])
    assert delta["vacuumed"] > 0
    after = [n for n in live if n != 11]
    assert found["iceberg"] == {"converted": live, "again": after}
    assert found["hadoop"] == {"converted": after, "again": after}
    assert found["staged"] == {"rows": [0, *range(4, 110)], "new": 20, "findings": []}


def test_eight_processes_delete_from_one_table_and_no_commit_is_lost(
    place: Place, s3: S3Server, tmp_path: Path
) -> None:
    table = _contended_table(s3, tmp_path)
    arguments = str(PROCESSES), str(ROUNDS)
    children = [started("delete", place, str(number), *arguments) for number in range(PROCESSES)]
    try:
        for child in children:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line == "ready\n", line or child.communicate()[1][-4000:]
        reports = []
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            output, errors = child.communicate()
            assert child.returncode == 0, errors[-4000:]
            reports += json.loads(output.splitlines()[-1])
    finally:
        for child in children:
            child.kill()
            child.wait()
    rows = set(range(3600))
    live = sorted(n for n in rows if n % (PROCESSES + 1) == PROCESSES)
    assert sorted(table.to_arrow()["id"].to_pylist()) == live
    # Each row was deleted once, by the commit of its own version.
    assert sum(deleted for _, deleted in reports) == len(rows) - len(live)
    versions = sorted(version for version, _ in reports)
    assert versions == list(range(2, 2 + PROCESSES * ROUNDS))
    assert table.version == versions[-1]
    assert table.check().findings == ()


def _contended_table(s3: S3Server, folder: Path) -> DeltaTable:
    builder = TableBuilder(folder / "local")
    builder.create()
    adds = [
        builder.write_file(f"part-{n}.parquet", {"id": range(n * 900, n * 900 + 900)})
        for n in range(4)
    ]
    builder.commit(*({"add": add} for add in adds))
    s3.upload(builder.root, CONTENDED)
    return DeltaTable.for_path(None, CONTENDED, s3.storage_options)
