"""Which files a log refers to, in whatever spelling and form."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from delvec.delta.log.paths import canonicalize_paths
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.vacuum.references import KeySet, keys_below, references, vector_keys
from delvec.errors import FormatError
from delvec.storage import Storage
from tests.delta.builder import TableBuilder
from tests.delta.vacuum.aging import days_ago, tombstone

NAME = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
VECTOR = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string())])


def keys(root: str, *paths: str, same_store: bool = False) -> list[str]:
    spelled = canonicalize_paths(pa.array(paths), root)
    found: list[str] = keys_below(spelled, root, same_store=same_store).to_pylist()
    return found


@pytest.mark.parametrize(
    "path",
    [
        "a b/c%41.parquet",
        "a%20b/c%2541.parquet",
        "a%20b//c%2541.parquet",
        "/lake/my%20t/a%20b/c%2541.parquet",
        "//lake/my%20t/a%20b/c%2541.parquet",
        "file:/lake/my%20t/a%20b/c%2541.parquet",
        "file:///lake/my%20t/a%20b/c%2541.parquet",
        "file://localhost/lake/my%20t//a%20b/c%2541.parquet",
    ],
)
def test_a_file_of_a_local_table_is_known_in_any_spelling(path: str) -> None:
    expected = "a b/cA.parquet" if path.startswith("a b") else "a b/c%41.parquet"
    assert keys("/lake/my t", path) == [expected]


@pytest.mark.parametrize(
    "path", ["s3://lake/t/x/1", "s3a://lake/t/x/1", "s3n://lake/t//x/1", "/t/x/1", "x/1"]
)
def test_a_file_of_a_table_in_a_bucket_is_known_in_any_spelling(path: str) -> None:
    for root in ("s3://lake/t", "s3a://lake/t"):
        assert keys(root, path) == keys(root, path, same_store=True) == ["x/1"]


def test_the_same_folder_elsewhere_is_kept_but_never_deleted(tmp_path: Path) -> None:
    paths = ["s3://other/t/x/1", "gs://lake/t/x/2", "s3://lake/t2/x/3", "s3://lake/t/x/4"]
    assert sorted(keys("s3://lake/t", *paths)) == ["x/1", "x/2", "x/4"]
    assert keys("s3://lake/t", *paths, same_store=True) == ["x/4"]
    assert keys(str(tmp_path / "t"), f"file://{tmp_path}/t2/1", f"{tmp_path}/1") == []


def test_the_tables_own_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (f"{tmp_path}/", f"file://{tmp_path}//", f"{tmp_path}/link/"):
        for same_store in (False, True):
            assert "" not in keys(str(tmp_path), path, same_store=same_store)
    assert keys("s3://lake/t", "s3://lake/t/") == []


def test_a_folder_has_another_name_behind_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "t", tmp_path / "t"
    (real / "part=1").mkdir(parents=True)
    link.symlink_to(real)
    for root, name in ((link, real), (real, link)):
        assert keys(str(root), f"file://{name}/part=1/x", f"{name}/y") == ["part=1/x", "y"]
        # What is deleted is named by the table's own name, or not at all.
        assert keys(str(root), f"file://{name}/part=1/x", same_store=True) == []


def located(root: str, *vectors: tuple[str | None, str | None] | None) -> list[str]:
    names = ("storageType", "pathOrInlineDv")
    bodies = [each and dict(zip(names, each, strict=True)) for each in vectors]
    found: list[str] = vector_keys(pa.array(bodies, VECTOR), root).to_pylist()
    return found


def test_every_form_of_a_vector_is_located() -> None:
    root, stored = "/lake/my t", "^-aqEH.-t@S}K{vb[*k^"
    inline = [("i", "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"), ("i", "")]
    absolute = [("p", f"file://{quote(root)}/x%20y.bin"), ("p", "/elsewhere/z.bin")]
    relative = [("u", stored), ("u", f"ab{stored}"), ("u", f"ab{stored}")]
    assert located(root, *relative, *inline, *absolute, None) == [NAME, f"ab/{NAME}", "x y.bin"]


@pytest.mark.parametrize(
    "vector",
    [
        *(("u", "too short"), ("u", "^-aqEH.-t@S}K{vb[*k~"), ("u", "../^-aqEH.-t@S}K{vb[*k^")),
        *(("r", "x.bin"), ("p", "/lake/../x.bin"), ("p", None), ("u", None)),
        (None, "^-aqEH.-t@S}K{vb[*k^"),
    ],
)
def test_a_vector_that_nobody_can_locate_is_refused(vector: tuple[str | None, str | None]) -> None:
    with pytest.raises(FormatError, match="/lake"):
        located("/lake", vector)


def test_tombstones_count_until_they_expire(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    adds = [table.write_file(f"{name}.parquet", {"id": [1, 2]}) for name in "abcd"]
    table.add(*adds)
    cutoff = days_ago(7)
    removes = [tombstone(add, None) for add in adds[1:]]
    for remove, when in zip(removes, (cutoff, cutoff - 1), strict=False):
        remove["remove"]["deletionTimestamp"] = when
    table.commit(*removes)
    snapshot = open_snapshot(Storage.open(tmp_path))
    found = {True: list[str](), False: list[str]()}
    for each in references(snapshot, cutoff):
        found[each.is_live] += each.keys.to_pylist()
    assert found == {True: ["a.parquet"], False: ["b.parquet"]}
    everything = {key for each in references(snapshot) for key in each.keys.to_pylist()}
    assert everything == {f"{name}.parquet" for name in "abcd"}


def test_a_set_of_keys() -> None:
    some = KeySet(pa.array([f"{part}-{n}" for n in range(100_000)]) for part in "ab")
    assert len(some) == 200_000
    assert some.contains(["a-7", "b-99999", "c-0", ""]).tolist() == [True, True, False, False]
    assert KeySet([]).contains(["a"]).tolist() == [False]
    assert not len(KeySet([pa.array([], pa.string())]))
