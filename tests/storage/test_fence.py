"""The fence: once prefixes are allowed, a table leads nowhere else outside of its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delvec.errors import FormatError, InvalidArgumentError
from delvec.storage import Storage
from delvec.storage.fence import lists_of
from delvec.storage.listed_files import open_listed_file
from tests.storage.contract import copied

BEYOND = "leads out of its folder, to a path that is not allowed"


def fenced(root: str, *allowed: list[str] | None) -> Storage:
    return Storage.open(root, {"aws_region": "x"}, allow_paths=allowed)


BELOW = ["x", "s3://lake/t/x", "s3a://lake/t/deep/x"]
ALLOWED = ["s3n://lake/shared/x", "s3://lake/shared/deep/x", "s3://lake/shared"]
OUTSIDE = [
    *("s3://lake/t2/x", "s3://lake/x", "s3://lake/share/x", "s3://lake/shared2/x"),
    *("s3://lake/Shared/x", "s3://other/shared/x"),
]


@pytest.mark.parametrize("path", [*BELOW, *ALLOWED, *OUTSIDE])
def test_what_is_below_the_table_or_allowed_is_opened_and_nothing_else(path: str) -> None:
    storage = fenced("s3a://lake/t", ["s3a://lake/shared/"])
    for copy in (storage, copied(storage)):
        if path not in OUTSIDE:
            open_listed_file(copy, path)
            copy.admit(path)
            continue
        with pytest.raises(FormatError, match=BEYOND) as error:
            open_listed_file(copy, path)
        for word in (path, "spark.delvec.allowedPaths", "allow_paths"):
            assert word in str(error.value)


def test_an_argument_narrows_what_the_session_allows_and_cannot_widen_it() -> None:
    storage = fenced("/lake/t", ["/lake/shared", "/lake/more"], ["/lake/shared/a", "/private"])
    storage.admit("/lake/shared/a/x")
    for path in ("/lake/shared/b/x", "/lake/more/x", "/private/x"):
        with pytest.raises(FormatError, match=BEYOND):
            storage.admit(path)
    assert storage.fence is not None
    again = Storage.open("/lake/t", allow_paths=lists_of(storage.fence.text))
    assert again.fence == storage.fence
    assert fenced("/lake/t", None, None).fence is None
    alone = fenced("/lake/t", [])
    alone.admit("x")
    alone.admit("/lake/t/x")
    with pytest.raises(FormatError, match=BEYOND):
        alone.admit("/lake/x")
    fenced("/lake/t", ["/"]).admit("/anywhere/x")
    fenced("/lake/t", ["file:///with%20space"]).admit("/with space/x")


@pytest.mark.parametrize("prefix", ["lake/shared", "", ".", "../x"])
def test_a_prefix_is_an_absolute_path(prefix: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not an absolute path"):
        fenced("/lake/t", [prefix])


def test_links_are_followed_before_they_are_judged(tmp_path: Path) -> None:
    table, outside, shared = (tmp_path / name for name in ("table", "outside", "shared"))
    for folder in (table, outside, shared):
        folder.mkdir()
        (folder / "x").write_bytes(b"1")
    (table / "out").symlink_to(outside / "x")
    (table / "folder").symlink_to(outside)
    (table / "fine").symlink_to(shared / "x")
    (tmp_path / "alias").symlink_to(table)
    storage = fenced(str(tmp_path / "alias"), [str(shared)])
    for key in ("out", "folder/x"):
        with pytest.raises(FormatError, match="a link to"):
            storage.admit(key)
        with pytest.raises(FormatError, match=BEYOND):
            storage.read(key)
        with pytest.raises(FormatError, match=BEYOND):
            storage.open_input(key)
    assert storage.read("x") == storage.read("fine") == b"1"
    storage.admit(str(table / "x"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="an open file has no name here")  # noqa: PTH110
def test_a_link_that_is_swapped_before_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").write_bytes(b"private")
    table = tmp_path / "table"
    table.mkdir()
    (table / "x").write_bytes(b"own")
    storage = fenced(str(table), [])
    real = os.open

    def swapped(path: object, *arguments: int) -> int:
        (table / "x").unlink()
        (table / "x").symlink_to(tmp_path / "outside")
        file = real(path, *arguments)  # type: ignore[arg-type]
        (table / "x").unlink()
        (table / "x").write_bytes(b"own")
        return file

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(FormatError, match=BEYOND):
        storage.read("x")
