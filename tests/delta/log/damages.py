"""Ways in which a table is damaged, forged or from the future, and what must come of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from delvec.errors import (
    ChecksumError,
    DelvecError,
    FormatError,
    ObjectNotFoundError,
    TruncatedError,
    UnsupportedFeatureError,
)
from tests.delta.builder import TableBuilder, removed, small_table


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
