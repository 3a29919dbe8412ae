"""Repairs: no row is lost, no deleted row comes back, and what is not certain is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

from delvec import DeltaTable
from delvec.delta.check.report import CheckReport
from delvec.errors import FormatError, ObjectNotFoundError, UnsupportedFeatureError
from delvec.vector import Descriptor
from tests.delta.builder import Action, TableBuilder, legacy, protocol_of, small_table
from tests.delta.check.checks import INLINE, checked, found, odd_vector, table_with
from tests.delta.log.damages import rewritten
from tests.delta.log_files import commits
from tests.delta.write.write_checks import before_commit, ids

PART = "part-0.parquet"


def actions(root: Path, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in the newest commit."""
    return [action[kind] for action in commits(root)[-1] if kind in action]


def odd(root: Path, form: str) -> None:
    """Make a table whose file has a vector for row 3 in a form that other engines trip over."""
    table = TableBuilder(root)
    table_with(root, odd_vector(table, form), table=table)


def kinds(report: CheckReport) -> list[str]:
    return sorted(each.kind for each in report.repairs)


WITHOUT_3 = [0, 1, 2, *range(4, 10)]


@pytest.mark.parametrize("form", ["inline", "padded", "absolute", "no offset"])
def test_a_vector_of_an_odd_form_is_stored_anew(tmp_path: Path, form: str) -> None:
    odd(tmp_path, form)
    before = ids(tmp_path)
    planned = checked(tmp_path, repair=True, dry_run=True)
    assert (planned.is_repaired, planned.warnings) == (False, 1)
    assert DeltaTable.for_path(None, tmp_path).version == 2
    report = checked(tmp_path, repair=True)
    assert (report.is_repaired, report.repaired_version, report.version) == (True, 3, 3)
    assert [(each.kind, each.files, each.path) for each in report.repairs] == [
        ("rewrite-vector", 1, PART)
    ]
    assert [each.kind for each in report.findings if each.severity != "info"] == []
    assert ids(tmp_path) == before == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    [add], [remove], [info] = (actions(tmp_path, kind) for kind in ("add", "remove", "commitInfo"))
    assert (add["dataChange"], remove["dataChange"]) == (False, False)
    # An unexpired tombstone of a vector in the log would break VACUUM of delta-spark.
    assert (remove["deletionTimestamp"] == 0) == (form in ("inline", "padded"))
    descriptor = Descriptor.from_json(add["deletionVector"])
    assert (descriptor.storage_type, descriptor.offset, descriptor.cardinality) == ("u", 1, 1)
    assert info["operation"] == "FSCK REPAIR"
    assert json.loads(info["operationParameters"]["repairs"]) == {"rewrite-vector": 1}
    assert "Version 3 was committed" in str(report)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    assert query.execute("SELECT id FROM t ORDER BY id").read_all()["id"].to_pylist() == before
    history = DeltaTable.for_path(None, tmp_path).arrow_history(1).to_pylist()
    assert history[0]["operation"] == "FSCK REPAIR"


@pytest.mark.parametrize(
    ("vector", "stats", "repairs"),
    [
        ([3], {"minValues": {"id": 0}, "nullCount": {"id": 0}}, ["add-row-count"]),
        (INLINE, {}, ["add-row-count", "rewrite-vector"]),
    ],
)
def test_a_missing_row_count_comes_from_the_footer(
    tmp_path: Path, vector: Action | list[int], stats: Action, repairs: list[str]
) -> None:
    table_with(tmp_path, vector, stats=stats)
    assert "missing-row-count" in {each.kind for each in checked(tmp_path).findings}
    report = checked(tmp_path, repair=True)
    assert (kinds(report), report.findings, ids(tmp_path)) == (repairs, (), WITHOUT_3)
    [add] = actions(tmp_path, "add")
    assert json.loads(add["stats"]) == {**stats, "numRecords": 10, "tightBounds": False}
    assert (len(actions(tmp_path, "remove")), add["dataChange"]) == (len(repairs) - 1, False)


def test_a_wrong_row_count_is_corrected(tmp_path: Path) -> None:
    """As of a writer that counts live rows: delvec refuses to read such a file."""
    table_with(tmp_path, [3, 4], stats={"numRecords": 8, "tightBounds": False})
    report = checked(tmp_path, repair=True)
    assert (kinds(report), report.errors) == (["replace-statistics"], 0)
    assert ids(tmp_path) == [0, 1, 2, 5, 6, 7, 8, 9]
    [add] = actions(tmp_path, "add")
    expected = {"numRecords": 10, "minValues": {"id": 0}, "maxValues": {"id": 9}}
    assert json.loads(add["stats"]).items() >= expected.items()


def test_rows_that_wrong_bounds_hid_are_found_again(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    stats = {"numRecords": 3, "minValues": {"id": 2}, "maxValues": {"id": 2}}
    add = table.write_file("a.parquet", {"id": [1, 2, 3]})
    table.add(add | {"stats": json.dumps(stats), "tags": {"k": "v"}})
    assert table.handle.count([("id", "=", 3)]) == 0
    assert checked(tmp_path, repair=True).findings == ()
    assert table.handle.count([("id", "=", 3)]) == 1
    [entered] = actions(tmp_path, "add")
    assert (entered["tags"], entered["dataChange"]) == ({"k": "v"}, False)
    assert actions(tmp_path, "remove") == []


def test_the_table_feature_is_added(tmp_path: Path) -> None:
    table_with(tmp_path, [3], table=TableBuilder(tmp_path, protocol=legacy(1, 2)))
    before = ids(tmp_path)
    report = checked(tmp_path, repair=True)
    assert (report.findings, [each.kind for each in report.repairs]) == ((), ["add-feature"])
    [now] = actions(tmp_path, "protocol")
    assert (now["minReaderVersion"], now["minWriterVersion"]) == (3, 7)
    assert now["readerFeatures"] == ["deletionVectors"]
    assert {"appendOnly", "invariants", "deletionVectors"} <= set(now["writerFeatures"])
    assert ids(tmp_path) == before


def test_one_of_two_entries_that_delete_the_same_rows_is_removed(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    [again] = table.write_vectors([0, 9], prefix="ab")
    absolute = (tmp_path / "part-1.parquet").as_uri()
    table.add(adds[0] | {"deletionVector": again})
    table.add(adds[1] | {"path": absolute})
    twice = [("error", "live-twice", path) for path in (PART, "part-1.parquet")]
    assert found(checked(tmp_path)) == twice
    repaired = checked(tmp_path, repair=True)
    assert [(each.kind, each.files) for each in repaired.repairs] == [("remove-duplicate", 2)]
    assert (repaired.errors, ids(tmp_path)) == (0, [*range(1, 9), *range(10, 13), *range(15, 20)])
    gone = {each["path"] for each in actions(tmp_path, "remove")}
    assert gone == {PART, absolute}  # the plain spelling stays


@pytest.mark.parametrize(
    "other", [{"partitionValues": {"p": "2"}}, {"baseRowId": 7}, {"defaultRowCommitVersion": 0}]
)
def test_entries_that_tell_different_things_are_let_be(tmp_path: Path, other: Any) -> None:  # noqa: ANN401
    fields = {"id": "long", "p": "long"}
    table = TableBuilder.made(tmp_path, fields=fields, partition_columns=["p"])
    add = table.append(PART, {"id": [1, 2]}, {"p": "1"})
    table.add(add | {"path": (tmp_path / PART).as_uri()} | other)
    report = checked(tmp_path, repair=True)
    assert report.repairs == ()
    assert ("error", "live-twice", PART) in found(report)


@pytest.mark.parametrize(
    ("form", "damage", "finding"),
    [
        ("stored", None, [("error", "missing-vector", PART)]),
        ("absolute", lambda data: data[:-1] + bytes([data[-1] ^ 1]), None),
        ("all rows", lambda data: data, None),
    ],
)
def test_vectors_that_are_gone_damaged_or_of_all_rows_are_left_alone(
    tmp_path: Path,
    form: str,
    damage: Callable[[bytes], bytes] | None,
    finding: Any,  # noqa: ANN401
) -> None:
    table = TableBuilder(tmp_path)
    [vector] = table.write_vectors(range(10) if form == "all rows" else [3])
    if form != "stored":
        vector |= {"storageType": "p", "pathOrInlineDv": table.vector_path().as_uri()}
    table_with(tmp_path, vector, table=table)
    path = table.vector_path()
    data = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(data))
    report = checked(tmp_path, repair=True)
    assert (report.repairs, report.version) == ((), 2)
    assert report.errors == (form != "all rows")
    assert finding is None or found(report) == finding


TIGHT = {"numRecords": 10, "minValues": {"id": 5}, "tightBounds": False}


@pytest.mark.parametrize(
    ("vector", "stats", "attempts"), [(INLINE, None, 1), ([3], TIGHT, 2)], ids=["vector", "bounds"]
)
def test_rows_that_are_deleted_meanwhile_stay_deleted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vector: Action | list[int],
    stats: Action | None,
    attempts: int,
) -> None:
    table = table_with(tmp_path, vector, stats=stats)
    [live] = actions(tmp_path, "add")
    tried = before_commit(monkeypatch, lambda: table.delete_rows(live, [3, 4], prefix="ab"))
    report = checked(tmp_path, repair=True)
    assert (report.repaired_version, report.errors, len(tried)) == (4, 0, attempts)
    assert stats or report.findings == ()
    assert ids(tmp_path) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_table_that_delvec_does_not_write_is_not_repaired(tmp_path: Path) -> None:
    odd(tmp_path, "inline")
    table = TableBuilder(tmp_path, version=2)
    table.commit({"protocol": protocol_of("deletionVectors", writers=["futureFeature"])})
    assert kinds(checked(tmp_path)) == ["rewrite-vector"]
    checkpoint = table.checkpoint([])[0]
    checkpoint.write_bytes(b"damaged")
    for remains in (True, False):
        with pytest.raises(UnsupportedFeatureError, match="futureFeature"):
            checked(tmp_path, repair=True)
        assert checkpoint.exists() == remains  # it was left where it is
        checkpoint.unlink(missing_ok=True)
    assert table.handle.version == 3


def damaged_checkpoint(root: Path, kind: str) -> tuple[TableBuilder, Path]:
    """Make the small table with a checkpoint that cannot be read, and a commit after it."""
    table, adds = small_table(root)
    if kind == "sidecar gone":
        table.protocol = protocol_of("deletionVectors", "v2Checkpoint")
        table.commit({"protocol": table.protocol})
        path, sidecar, _ = table.checkpoint_with_sidecars(adds, as_json=True)
        sidecar.unlink()
    else:
        path = table.checkpoint(adds, parts=2 if kind == "a part" else 1)[0]
        data = path.read_bytes()
        cut = {"a column": data[:90] + bytes(200) + data[290:]}.get(kind, data[: len(data) // 2])
        path.write_bytes(cut)
    table.append("later.parquet", {"id": [100]})
    return table, path


@pytest.mark.parametrize("kind", ["cut", "a column", "a part", "sidecar gone"])
def test_a_damaged_checkpoint_is_set_aside_if_commits_are_there(tmp_path: Path, kind: str) -> None:
    _, path = damaged_checkpoint(tmp_path, kind)
    table = DeltaTable.for_path(None, tmp_path)
    with pytest.raises((FormatError, ObjectNotFoundError)):
        table.to_arrow()
    report = table.check()
    name = f"_delta_log/{path.name}"
    assert ("error", "damaged-checkpoint", name) in found(report)
    assert report.data_files == 3  # the rest is checked all the same
    assert "set-aside-checkpoint" in [each.kind for each in report.repairs]
    assert path.exists()
    repaired = DeltaTable(tmp_path).check(repair=True)
    assert (repaired.errors, repaired.warnings, repaired.repaired_version) == (0, 0, None)
    assert not path.exists()
    assert (path.parent / f"{path.name}.damaged").exists()
    assert table.count() == 17
    newest = table.snapshot()
    assert newest.segment.checkpoint is not None
    assert newest.segment.checkpoint.version == newest.version
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path))
    assert reader.execute("SELECT count(*) AS n FROM t").read_all()["n"].to_pylist() == [17]


@pytest.mark.parametrize("gone", [(0,), (2, 3)], ids=["the first commit", "its own and the next"])
def test_a_needed_checkpoint_is_left_alone(tmp_path: Path, gone: tuple[int, ...]) -> None:
    table, path = damaged_checkpoint(tmp_path, "cut")
    table.drop_commits(*gone)
    report = checked(tmp_path, repair=True)
    assert (report.ok, report.repairs, path.exists()) == (False, (), True)
    assert gone != (0,) or ("error", "damaged-log", f"_delta_log/{path.name}") in found(report)


def test_a_checkpoint_is_left_alone_if_the_commits_cannot_make_a_new_one(tmp_path: Path) -> None:
    table, path = damaged_checkpoint(tmp_path, "cut")
    table.commit({"remove": {"path": "gone.parquet", "deletionTimestamp": "soon"}})
    report = checked(tmp_path, repair=True)
    assert (report.ok, report.repairs, path.exists()) == (False, (), True)


def test_repairs_work_from_a_checkpoint_and_keep_row_ids(tmp_path: Path) -> None:
    features = ["rowTracking", "domainMetadata"]
    properties = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_id",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
    }
    protocol = protocol_of("deletionVectors", writers=features)
    table = TableBuilder(tmp_path, protocol=protocol, properties=properties)
    table_with(tmp_path, INLINE, table=table)
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark": 9}'}
    table.commit({"domainMetadata": mark | {"removed": False}})

    def numbered(action: dict[str, Any]) -> dict[str, Any]:
        if "add" in action:
            action["add"] |= {"baseRowId": 0, "defaultRowCommitVersion": 1}
        return action

    for version in (1, 2):
        rewritten(table.commit_path(version), numbered)
    table.handle.checkpoint()
    table.drop_commits(0, 1, 2)
    report = checked(tmp_path, repair=True)
    assert (kinds(report), report.errors, ids(tmp_path)) == (["rewrite-vector"], 0, WITHOUT_3)
    [add] = actions(tmp_path, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 1)
