"""Damaged, forged and future tables: an error that names what and where, never a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import delvec.delta.table as delta
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.load_vectors import load_vectors
from delvec.errors import (
    ChecksumError,
    DelvecError,
    FormatError,
    ObjectNotFoundError,
    TruncatedError,
    UnsupportedFeatureError,
)
from delvec.storage import Storage
from delvec.vector import Bitmap
from tests.delta.builder import TableBuilder, removed, small_table
from tests.delta.readers import read_frame, settings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ALIVE = [*range(1, 9), *range(10, 13), *range(15, 20)]


class Damage(NamedTuple):
    """What must come of a damaged table: an error of this kind, whose text holds these words."""

    error: type[DelvecError]
    words: tuple[str, ...]


Damaging = Callable[[Path], Damage]
CASES: dict[str, Damaging] = {}


def case(make: Damaging) -> Damaging:
    """Register a case by its name; it makes a table at a path and says what must come of it."""
    CASES[make.__name__] = make
    return make


def ids_of(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def rewritten(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change the actions of a commit one by one; None leaves one out."""
    actions = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(action) + "\n" for action in actions if action is not None))


def with_vector(name: str, **fields: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change the descriptor of one file."""

    def change(action: dict[str, Any]) -> dict[str, Any]:
        add = action.get("add")
        if add and add["path"] == name:
            add["deletionVector"] |= fields
        return action

    return change


# Vectors


@case
def a_flipped_byte_in_a_vector(root: Path) -> Damage:
    table, _ = small_table(root)
    path = table.vector_path()
    data = bytearray(path.read_bytes())
    data[-6] ^= 0x10  # the last position of the second vector
    path.write_bytes(data)
    return Damage(ChecksumError, ("part-1.parquet", path.name, str(root)))


@case
def a_vector_file_that_is_cut_short(root: Path) -> Damage:
    table, _ = small_table(root)
    path = table.vector_path()
    path.write_bytes(path.read_bytes()[:-3])
    return Damage(TruncatedError, ("part-1.parquet", path.name, str(root)))


@case
def a_vector_file_that_is_gone(root: Path) -> Damage:
    table, _ = small_table(root)
    path = table.vector_path()
    path.unlink()
    return Damage(ObjectNotFoundError, (".parquet", path.name, str(root)))


@case
def a_wrong_cardinality_in_the_log(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-1.parquet", cardinality=3))
    return Damage(FormatError, ("part-1.parquet", table.vector_path().name, "3", "2"))


@case
def a_cardinality_of_nothing_for_a_vector_that_is_there(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-1.parquet", cardinality=0))
    return Damage(FormatError, ("part-1.parquet", table.vector_path().name, "2"))


@case
def a_vector_whose_cardinality_is_missing(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-1.parquet", cardinality=None))
    return Damage(FormatError, ("part-1.parquet", "cardinality", str(root)))


@case
def a_vector_whose_path_is_missing(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-1.parquet", pathOrInlineDv=None))
    return Damage(FormatError, ("part-1.parquet", str(root)))


@case
def a_vector_whose_kind_is_missing(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-1.parquet", storageType=None))
    return Damage(FormatError, ("part-1.parquet", str(root)))


@case
def a_wrong_size_of_a_vector_in_the_log(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-0.parquet", sizeInBytes=34))
    return Damage(FormatError, ("part-0.parquet", table.vector_path().name))


@case
def the_offset_of_another_vector(root: Path) -> Damage:
    """Both vectors are of one size and cardinality, so that only the position tells."""
    table, adds = small_table(root)
    other = adds[1]["deletionVector"]["offset"]
    rewritten(table.commit_path(2), with_vector("part-0.parquet", offset=other + 1))
    return Damage(FormatError, ("part-0.parquet", table.vector_path().name))


@case
def a_position_that_the_file_does_not_have(root: Path) -> Damage:
    table = TableBuilder(root)
    table.create()
    add = table.write_file("part-0.parquet", {"id": list(range(10))})
    table.commit({"add": add})
    table.delete(add, table.write_vectors([3, 10])[0])
    return Damage(FormatError, ("part-0.parquet", table.vector_path().name, "row 10", "10"))


@case
def a_vector_of_an_unknown_kind(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-0.parquet", storageType="r"))
    return Damage(FormatError, ("part-0.parquet", "'r'"))


@case
def a_vector_that_climbs_out_of_the_table(root: Path) -> Damage:
    table, adds = small_table(root)
    text = adds[0]["deletionVector"]["pathOrInlineDv"]
    rewritten(table.commit_path(2), with_vector("part-0.parquet", pathOrInlineDv=f"..{text}"))
    return Damage(FormatError, ("part-0.parquet", "'..'", str(root)))


@case
def an_absolute_vector_on_another_kind_of_store(root: Path) -> Damage:
    table, _ = small_table(root)
    path = "s3://elsewhere/deletion_vector.bin"
    change = with_vector("part-0.parquet", storageType="p", pathOrInlineDv=path)
    rewritten(table.commit_path(2), change)
    return Damage(FormatError, (path, str(root)))


# The log


@case
def a_commit_that_is_cut_short(root: Path) -> Damage:
    table, _ = small_table(root)
    path = table.commit_path(2)
    path.write_text(path.read_text()[:-40])
    return Damage(FormatError, (path.name, "line"))


@case
def a_commit_with_a_hole_of_zeros(root: Path) -> Damage:
    table, _ = small_table(root)
    path = table.commit_path(2)
    data = path.read_bytes()
    path.write_bytes(data[:300] + bytes(60) + data[360:])
    return Damage(FormatError, (path.name,))


@case
def a_commit_that_is_not_text(root: Path) -> Damage:
    table, _ = small_table(root)
    path = table.commit_path(1)
    path.write_bytes(path.read_bytes().replace(b"part-0", b"part\xff0"))
    return Damage(FormatError, (path.name, "UTF-8"))


@case
def a_commit_without_a_byte(root: Path) -> Damage:
    """What a writer leaves that died: without its actions nobody knows which rows are deleted."""
    table, _ = small_table(root)
    path = table.commit_path(2)
    path.write_bytes(b"")
    return Damage(FormatError, (path.name,))


@case
def a_field_of_the_wrong_type(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(2), with_vector("part-0.parquet", cardinality="two"))
    return Damage(FormatError, (table.commit_path(2).name,))


@case
def an_add_without_a_path(root: Path) -> Damage:
    table, adds = small_table(root)
    table.commit({"add": {name: value for name, value in adds[0].items() if name != "path"}})
    return Damage(FormatError, ("path", str(root)))


@case
def a_commit_that_is_missing_in_the_middle(root: Path) -> Damage:
    table, _ = small_table(root)
    table.drop_commits(1)
    return Damage(FormatError, (str(root), table.commit_path(1).name, "version 1"))


@case
def a_first_commit_that_is_missing(root: Path) -> Damage:
    table, _ = small_table(root)
    table.drop_commits(0)
    return Damage(FormatError, (str(root), table.commit_path(0).name))


@case
def a_log_without_a_protocol(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(0), lambda action: None if "protocol" in action else action)
    return Damage(FormatError, (str(root), "protocol"))


@case
def a_log_without_metadata(root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(0), lambda action: None if "metaData" in action else action)
    return Damage(FormatError, (str(root), "metaData"))


@case
def a_file_that_was_removed_without_its_vector(root: Path) -> Damage:
    """Another engine would read the rows of the file twice."""
    table, adds = small_table(root)
    [again] = table.write_vectors([0, 1, 9], prefix="ab")
    plain = {name: value for name, value in adds[0].items() if name != "deletionVector"}
    table.commit({"remove": removed(plain)}, {"add": adds[0] | {"deletionVector": again}})
    return Damage(FormatError, ("part-0.parquet", str(root), "more than once"))


@case
def a_file_under_two_spellings(root: Path) -> Damage:
    table, adds = small_table(root)
    plain = {name: value for name, value in adds[0].items() if name != "deletionVector"}
    table.commit({"add": plain | {"path": "part%2D0.parquet"}})
    return Damage(FormatError, ("part-0.parquet", str(root), "more than once"))


@case
def an_absolute_spelling_of_a_file_of_the_table(root: Path) -> Damage:
    table, adds = small_table(root)
    plain = {name: value for name, value in adds[0].items() if name != "deletionVector"}
    table.commit({"add": plain | {"path": (root / "part-0.parquet").as_uri()}})
    return Damage(FormatError, ("part-0.parquet", str(root), "more than once"))


@case
def a_file_added_and_removed_by_one_commit(root: Path) -> Damage:
    table, adds = small_table(root)
    table.commit({"add": adds[0]}, {"remove": removed(adds[0])})
    return Damage(FormatError, ("part-0.parquet", table.commit_path(3).name))


# Data files


@case
def a_data_file_that_is_gone(root: Path) -> Damage:
    small_table(root)
    (root / "part-1.parquet").unlink()
    return Damage(ObjectNotFoundError, ("part-1.parquet",))


def forged(root: Path, path: str) -> None:
    """Add a file beside the table, by a path that leads there."""
    table, _ = small_table(root)
    outside = TableBuilder(root.parent).write_file("outside.parquet", {"id": [99]})
    table.commit({"add": outside | {"path": path}})


@case
def a_path_that_climbs(root: Path) -> Damage:
    forged(root, "../outside.parquet")
    return Damage(FormatError, (str(root), "../outside.parquet"))


@case
def an_encoded_path_that_climbs(root: Path) -> Damage:
    forged(root, "..%2Foutside.parquet")
    return Damage(FormatError, (str(root), "../outside.parquet"))


@case
def an_encoded_path_with_encoded_dots(root: Path) -> Damage:
    forged(root, "inside/%2e%2E/../outside.parquet")
    return Damage(FormatError, (str(root), "../outside.parquet"))


@case
def an_absolute_path_that_climbs(root: Path) -> Damage:
    forged(root, f"file://{root}/../outside.parquet")
    return Damage(FormatError, (str(root), "../outside.parquet"))


@case
def a_path_on_another_kind_of_store(root: Path) -> Damage:
    forged(root, "s3://elsewhere/outside.parquet")
    return Damage(FormatError, (str(root), "s3://elsewhere/outside.parquet"))


@case
def a_path_that_is_badly_encoded(root: Path) -> Damage:
    forged(root, "outside%2.parquet")
    return Damage(FormatError, (str(root), "outside%2.parquet"))


# Tables from the future


def with_protocol(root: Path, **protocol: object) -> None:
    table, _ = small_table(root)
    table.commit({"protocol": table.protocol | protocol})


@case
def a_reader_version_from_the_future(root: Path) -> Damage:
    with_protocol(root, minReaderVersion=4)
    return Damage(UnsupportedFeatureError, (str(root), "4"))


def with_feature(root: Path, name: str) -> Damage:
    features = ["deletionVectors", name]
    with_protocol(root, readerFeatures=features, writerFeatures=features)
    return Damage(UnsupportedFeatureError, (str(root), name))


@case
def a_feature_from_the_future(root: Path) -> Damage:
    return with_feature(root, "futureFeature")


@case
def a_table_that_a_catalog_manages(root: Path) -> Damage:
    return with_feature(root, "catalogManaged")


@case
def a_table_with_adaptive_metadata(root: Path) -> Damage:
    return with_feature(root, "adaptiveMetadata-preview")


@case
def files_of_another_format(root: Path) -> Damage:
    table, _ = small_table(root)
    table.provider = "orc"
    table.commit({"metaData": table.metadata()})
    return Damage(UnsupportedFeatureError, (str(root), "orc"))


# Checkpoints


def checkpointed(root: Path, *, parts: int = 1) -> tuple[TableBuilder, list[Path]]:
    """Make the small table live in a checkpoint alone."""
    table, adds = small_table(root)
    paths = table.checkpoint(adds, parts=parts)
    table.write_hint()
    table.drop_commits(0, 1, 2)
    return table, paths


@case
def a_checkpoint_that_is_damaged(root: Path) -> Damage:
    _, [path] = checkpointed(root)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return Damage(FormatError, (path.name, "checkpoint"))


@case
def a_checkpoint_with_damaged_pages(root: Path) -> Damage:
    _, [path] = checkpointed(root)
    data = bytearray(path.read_bytes())
    data[4:1200] = bytes(1196)
    path.write_bytes(data)
    return Damage(FormatError, (path.name, "checkpoint"))


@case
def a_part_of_a_checkpoint_that_is_missing(root: Path) -> Damage:
    table, paths = checkpointed(root, parts=2)
    table.commit()
    paths[1].unlink()
    return Damage(FormatError, (str(root), table.commit_path(0).name))


@case
def a_sidecar_that_is_missing(root: Path) -> Damage:
    table, adds = small_table(root)
    paths = table.checkpoint_with_sidecars(adds, as_json=True)
    paths[-1].unlink()
    return Damage(ObjectNotFoundError, (paths[-1].name,))


@case
def a_sidecar_that_is_damaged(root: Path) -> Damage:
    table, adds = small_table(root)
    paths = table.checkpoint_with_sidecars(adds, as_json=False)
    paths[-1].write_bytes(b"PAR1, and then no more")
    return Damage(FormatError, (paths[-1].name,))


# Each read by the data source starts processes of Python, twice: the rest runs with the slow tests.
BY_SOURCE = {
    "a_flipped_byte_in_a_vector",
    "a_commit_that_is_missing_in_the_middle",
    "a_feature_from_the_future",
}


def marks(name: str, form: str = "") -> list[Any]:
    slow = form == "source" and name not in BY_SOURCE
    return [pytest.mark.slow] * slow


ALONE = [pytest.param(name, marks=marks(name)) for name in CASES]
ON_SPARK = [
    pytest.param(name, form, marks=marks(name, form))
    for name in CASES
    for form in ("to_df", "by rows", "source")
    if form != "by rows" or "vector" in name or "position" in name
]


@pytest.mark.parametrize("name", ALONE)
def test_arrow_gives_an_error_that_names_what_and_where(tmp_path: Path, name: str) -> None:
    expected = CASES[name](tmp_path / "table")
    with pytest.raises(expected.error) as caught:
        delta.DeltaTable.for_path(None, tmp_path / "table").to_arrow()
    for word in expected.words:
        assert word in str(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize(("name", "form"), ON_SPARK)
def test_spark_gives_an_error_that_names_what_and_where(
    spark: SparkSession, tmp_path: Path, name: str, form: str
) -> None:
    expected = CASES[name](tmp_path / "table")
    reader = "source" if form == "source" else "to_df"
    vectorized = {"spark.sql.parquet.enableVectorizedReader": str(form != "by rows").lower()}
    with (
        settings_of(spark, vectorized),
        pytest.raises((DelvecError, PySparkException, Py4JJavaError)) as caught,
    ):
        read_frame(reader, spark, tmp_path / "table").collect()
    for word in expected.words:
        assert word in str(caught.value)


# What is no damage


def test_the_table_that_all_cases_damage_is_read(tmp_path: Path) -> None:
    small_table(tmp_path)
    table = delta.DeltaTable.for_path(None, tmp_path)
    assert ids_of(table.to_arrow()) == ALIVE
    assert table.count() == len(ALIVE)
    assert ids_of(table.to_arrow(version=1)) == list(range(20))
    assert ids_of(table.to_arrow(version=0)) == []


@pytest.mark.parametrize("kind", ["classic", "parts", "json", "parquet"])
def test_checkpoints_of_every_kind_are_read(tmp_path: Path, kind: str) -> None:
    table, adds = small_table(tmp_path)
    if kind in ("json", "parquet"):
        table.checkpoint_with_sidecars(adds, as_json=kind == "json")
    else:
        table.checkpoint(adds, parts=3 if kind == "parts" else 1)
    table.drop_commits(0, 1)
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE
    table.drop_commits(2)
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE
    [more] = table.write_vectors([0, 1, 9], prefix="ab")
    table.delete(adds[0], more)
    left = [number for number in ALIVE if number != 1]
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == left


@pytest.mark.parametrize(
    "hint", ["", "{", "[]", '{"version": "2"}', '{"version": 99}', '{"version": -1}', "\x00\x01"]
)
def test_a_damaged_hint_at_the_last_checkpoint_does_no_harm(tmp_path: Path, hint: str) -> None:
    table, adds = small_table(tmp_path)
    table.checkpoint(adds)
    table.write_hint(hint)
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE


def test_a_missing_part_of_a_checkpoint_does_no_harm_while_the_commits_are_there(
    tmp_path: Path,
) -> None:
    table, adds = small_table(tmp_path)
    table.checkpoint(adds, parts=2)[0].unlink()
    table.write_hint()
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE


def test_vectors_count_when_the_property_that_writes_them_is_off(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    table.properties = {"delta.enableDeletionVectors": "false"}
    table.commit({"metaData": table.metadata()})
    opened = delta.DeltaTable.for_path(None, tmp_path)
    assert opened.properties == table.properties
    assert ids_of(opened.to_arrow()) == ALIVE
    assert opened.count() == len(ALIVE)


@pytest.mark.spark
def test_spark_honours_vectors_when_the_property_that_writes_them_is_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, _ = small_table(tmp_path)
    table.properties = {"delta.enableDeletionVectors": "false"}
    table.commit({"metaData": table.metadata()})
    frame = delta.DeltaTable.for_path(spark, tmp_path).to_df()
    assert ids_of(frame.toArrow()) == ALIVE


def test_the_order_inside_a_commit_means_nothing(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    path = table.commit_path(2)
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE


def test_unknown_actions_and_fields_are_passed_over(tmp_path: Path) -> None:
    table, adds = small_table(tmp_path)
    path = table.commit_path(2)
    rewritten(path, with_vector("part-0.parquet", futureField={"a": [1, None]}))
    table.commit({"futureAction": {"path": "part-0.parquet", "size": "large"}})
    table.commit({"cdc": {"path": "_change_data/x.parquet", "size": 1}})
    table.commit({"add": adds[0] | {"futureField": {"a": [1]}, "tags": {"a": "b"}}})
    assert ids_of(delta.DeltaTable.for_path(None, tmp_path).to_arrow()) == ALIVE


# Requests


def many_vectors(root: Path, files: int, per_bin: int) -> list[list[int]]:
    """Make a table whose files all have vectors, several in each `.bin`; give the deleted rows."""
    table = TableBuilder(root)
    table.create()
    names = [f"part-{number:02d}.parquet" for number in range(files)]
    adds = [table.write_file(name, {"id": list(range(100))}) for name in names]
    table.commit(*({"add": add} for add in adds))
    deleted = [sorted({number, 2 * number, 99}) for number in range(files)]
    live = []
    for start in range(0, files, per_bin):
        vectors = table.write_vectors(*deleted[start : start + per_bin])
        live += [
            add | {"deletionVector": vector}
            for add, vector in zip(adds[start : start + per_bin], vectors, strict=True)
        ]
    table.commit(*({"remove": removed(add)} for add in adds), *({"add": add} for add in live))
    return deleted


@pytest.mark.parametrize(("per_bin", "bins"), [(1, 12), (4, 3), (12, 1)])
def test_vectors_cost_one_request_for_each_file_that_holds_them(
    tmp_path: Path, per_bin: int, bins: int
) -> None:
    deleted = many_vectors(tmp_path, 12, per_bin)
    storage = Storage.open(tmp_path)
    files = open_snapshot(storage).files.data_files()
    before = storage.requests
    vectors = load_vectors(storage, files)
    made = storage.requests - before
    assert (made.gets, made.heads, made.lists) == (bins, 0, 0)
    by_path = {file.path: vector for file, vector in zip(files, vectors, strict=True)}
    for number, positions in enumerate(deleted):
        assert by_path[f"part-{number:02d}.parquet"] == Bitmap(positions)


def test_a_snapshot_costs_one_listing_and_one_request_for_each_commit(tmp_path: Path) -> None:
    many_vectors(tmp_path, 12, 4)
    storage = Storage.open(tmp_path)
    assert len(open_snapshot(storage).files) == 12
    # Three commits, and the hint at a checkpoint that is not there.
    assert storage.requests.gets <= 4
    assert (storage.requests.lists, storage.requests.heads) == (1, 0)


def test_reading_costs_at_most_one_more_request_for_each_file_with_a_vector(
    tmp_path: Path,
) -> None:
    many_vectors(tmp_path, 12, 1)
    table = delta.DeltaTable.for_path(None, tmp_path)
    files = len(table.snapshot().files)

    def requests(version: int) -> int:
        table.snapshot(version).files.data_files()
        opening = table.storage.requests.gets
        table.snapshot(version).files.data_files()
        opening = table.storage.requests.gets - opening
        before = table.storage.requests.gets
        table.to_arrow(version=version)
        return table.storage.requests.gets - before - opening

    without, with_vectors = requests(1), requests(2)
    assert without == files
    assert with_vectors <= without + files


def test_only_the_vectors_of_files_that_are_read_are_loaded(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, fields={"id": "long", "p": "integer"}, partition_columns=["p"])
    table.create()
    adds = [
        table.write_file(f"p={p}/part.parquet", {"id": [p, p + 10]}, {"p": str(p)})
        for p in range(4)
    ]
    table.commit(*({"add": add} for add in adds))
    for add in adds:
        table.delete(add, table.write_vectors([0])[0])
    opened = delta.DeltaTable.for_path(None, tmp_path)
    opened.snapshot()
    kept = str(opened.snapshot().files.data_files()[2].descriptor.file_path)  # type: ignore[union-attr]
    for path in tmp_path.glob("*.bin"):
        if path.name != kept:
            path.unlink()
    wanted = opened.snapshot().files.data_files()[2].partition_values["p"]
    found = opened.to_arrow([("p", "=", int(wanted or -1))])
    assert found.column("id").to_pylist() == [int(wanted or -1) + 10]
    with pytest.raises(ObjectNotFoundError):
        opened.to_arrow()


def test_positions_of_row_groups_meet_the_vector(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    table.create()
    add = table.write_file(
        "part-0.parquet", {"id": list(range(1000))}, row_group_size=37, data_page_size=64
    )
    table.commit({"add": add})
    gone = [*range(30, 80), 500, 999]
    table.delete(add, table.write_vectors(gone)[0])
    opened = delta.DeltaTable.for_path(None, tmp_path)
    alive = np.setdiff1d(np.arange(1000), gone)
    assert ids_of(opened.to_arrow()) == alive.tolist()
    assert ids_of(opened.to_arrow([("id", ">=", 480), ("id", "<", 520)])) == [
        number for number in range(480, 520) if number != 500
    ]
