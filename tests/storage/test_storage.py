"""`delvec.storage` on local disk, and the options of object stores; no server is needed."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import FrozenInstanceError
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from pyarrow import parquet

from delvec.errors import (
    DelvecError,
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TruncatedError,
    UnsupportedFeatureError,
)
from delvec.storage import STAGED_PREFIX, RequestCounts, Storage, options_from_hadoop
from delvec.storage.options import merge_options, split_options

ODD_NAMES = [
    *("a b", "a%20b", "100%", "%", "a#b", "a#1", "a?b", "a+b", "a[b]", "a{b}", "a*b", "a&b"),
    *("~x", "x%2Fy", "é☃", ".hidden", "_under", "c=x:y", "part=a%20b/f", "p='q\"", "a\nb"),
    *("..x", "x.", "a^b`c|d<e>", "a\udcffb", "n" * 255),
]
BAD_KEYS = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/", "a/./b", "a\\b", "a\0"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(tmp_path / "my table%20#1")


def files_of(storage: Storage) -> list[str]:
    root = Path(storage.root)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def keys(storage: Storage, folder: str = "", **options: str | bool) -> list[str]:
    return [info.key for info in storage.list(folder, **options)]  # type: ignore[arg-type]


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start another Python that first says it is ready, then waits for a line."""
    prelude = "import sys\nfrom delvec.storage import *\nprint('ready', flush=True)\ninput()\n"
    command = [sys.executable, "-c", prelude + code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def finish(process: subprocess.Popen[str]) -> str:
    with process:
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0
    return output


def release(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")


# Where a storage is


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/data/t", "/data/t"),
        ("/data/t///", "/data/t"),
        ("/", "/"),
        ("/data/a%20b#1?x", "/data/a%20b#1?x"),
        ("/data/x/../t", "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/t/", "/data/t"),
        ("FILE://localhost/data/t", "/data/t"),
        ("file:///data/a%20b%25#1?x", "/data/a b%#1?x"),
        ("file:/data/%C3%A9", "/data/é"),
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3a://lake//a%20b/ t/", "s3a://lake/a%20b/ t"),
        ("s3n://lake/t", "s3n://lake/t"),
        ("gs://lake/t/", "gs://lake/t"),
        ("abfss://c@acc.dfs.core.windows.net/t/", "abfss://c@acc.dfs.core.windows.net/t"),
        ("abfs://c@acc.dfs.core.windows.net", "abfs://c@acc.dfs.core.windows.net"),
    ],
)
def test_a_root_is_a_path_or_a_uri(uri: str, root: str) -> None:
    assert Storage.open(uri).root == root


@pytest.mark.parametrize("path", ["t", "c=x:y/t", "a:b", "~/t", "file", "s3:"])
def test_a_relative_path_is_made_absolute(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage.open(path).root == str(tmp_path / path)


@pytest.mark.parametrize(
    "uri", ["hdfs://host/t", "dbfs:/t", "http://host/t", "C:/t", "wasbs://c@a"]
)
def test_an_unknown_scheme_names_the_known_ones(uri: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"Hint: .* file, s3, s3a, s3n, gs, abfss"):
        Storage.open(uri)


@pytest.mark.parametrize(
    "uri",
    ["", "a\0b", "file://host/t", "s3:///t", "s3:/t", "s3://lake/../t", "gs://c@a/t", "s3://b?c/t"],
)
def test_a_uri_that_names_nothing_is_refused(uri: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Storage.open(uri)


def test_credentials_in_a_uri_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidArgumentError, match="storage_options") as caught:
        Storage.open("s3a://AKIA:SECRET@lake/t")
    assert "SECRET" not in str(caught.value)


def test_a_storage_shows_no_options() -> None:
    options = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "SECRET"}
    storage = Storage.open("s3://lake/t", options)
    assert repr(storage) == "Storage(root='s3://lake/t')"
    assert "SECRET" not in str(storage)


def test_a_storage_is_immutable_and_compares_by_root_and_options(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    assert {storage, Storage.open(f"{tmp_path}/")} == {storage}
    assert storage != Storage.open(tmp_path / "x")
    assert storage != Storage.open(tmp_path, {"a": "b"})
    with pytest.raises(FrozenInstanceError):
        storage.root = "x"  # type: ignore[misc]


def test_importing_does_not_import_spark() -> None:
    code = "import sys, delvec.storage; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Reading and writing


def test_what_is_written_is_read_back(storage: Storage) -> None:
    storage.write("a/b/1.bin", b"old")
    storage.write("a/b/1.bin", memoryview(b"0123456789"))
    assert storage.read("a/b/1.bin") == b"0123456789"
    assert storage.read_range("a/b/1.bin", 3, 4) == b"3456"
    assert storage.size("a/b/1.bin") == 10
    assert files_of(storage) == ["a/b/1.bin"]


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.write_if_absent("empty", b"")
    assert storage.read("empty") == b""
    assert storage.read_range("empty", 0, 0) == b""
    assert storage.exists("empty")


def test_wide_buffers_are_written_as_their_bytes(storage: Storage) -> None:
    storage.write("f", memoryview(b"12345678").cast("q"))
    assert storage.read("f") == b"12345678"
    assert storage.requests.bytes_written == 8


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_literal(storage: Storage, name: str) -> None:
    storage.write_if_absent(f"d/{name}", b"1")
    assert files_of(storage) == [f"d/{name}"]
    assert storage.read(f"d/{name}") == b"1"
    assert storage.exists(f"d/{name}")
    assert keys(storage, recursive=True) == [f"d/{name}"]
    assert keys(storage, "d", start_from=name, recursive=True) == [f"d/{name}"]
    storage.write(f"d/{name}", b"2")
    storage.delete([f"d/{name}"])
    assert files_of(storage) == []


@pytest.mark.parametrize("key", BAD_KEYS)
def test_keys_that_leave_the_root_are_refused(storage: Storage, key: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: storage.read(key),
        lambda: storage.read_range(key, 0, 1),
        lambda: storage.open_input(key),
        lambda: storage.stat(key),
        lambda: storage.exists(key),
        lambda: storage.write(key, b""),
        lambda: storage.write_if_absent(key, b""),
        lambda: storage.delete(["fine", key]),
        lambda: storage.uri_of(key),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidArgumentError, match="cannot be a key"):
            attempt()
    if key.strip("/"):
        with pytest.raises(InvalidArgumentError, match="cannot be a key"):
            storage.list(start_from=key)
    assert storage.requests == RequestCounts()


def test_an_input_is_a_seekable_file_and_counts_as_one_get(storage: Storage) -> None:
    storage.write("f", b"0123456789")
    before = storage.requests
    with storage.open_input("f") as file:
        assert (file.size(), file.readable(), file.seekable(), file.writable()) == (10, 1, 1, 0)
        assert (file.read(3), file.tell()) == (b"012", 3)
        assert (file.seek(-2, os.SEEK_END), file.read(5), file.read()) == (8, b"89", b"")
        assert (file.seek(4), file.seek(1, os.SEEK_CUR), file.read()) == (4, 5, b"56789")
        assert (file.seek(50), file.read(1)) == (50, b"")
        file.seek(0)
        assert file.readinto(buffer := bytearray(4)) == 4
        assert (bytes(buffer), file.readall()) == (b"0123", b"456789")
        for wrong in ((-1, 0), (-11, 2), (0, 7)):
            with pytest.raises(InvalidArgumentError, match="cannot seek"):
                file.seek(*wrong)
    assert file.closed
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()
    spent = storage.requests - before
    assert (spent.gets, spent.heads, spent.bytes_read) == (1, 0, 20)


def test_an_input_serves_what_was_prefetched(storage: Storage) -> None:
    storage.write("f", bytes(range(100)))
    with storage.open_input("f", size=100) as file:
        file.prefetch([(10, 20), (50, 10), (70, 0)])
        assert storage.requests.bytes_read == 30
        file.seek(12)
        assert file.read(18) == bytes(range(12, 30))
        file.prefetch([(10, 5), (60, 5)])
        assert storage.requests.bytes_read == 35
        file.seek(58)
        assert file.read(4) == bytes(range(58, 62))
        assert storage.requests.bytes_read == 39


def test_an_input_reads_parquet_and_fails_in_our_words(storage: Storage) -> None:
    table = pa.table({"a": range(1000)})
    Path(storage.root).mkdir()
    parquet.write_table(table, Path(storage.root, "f"))
    with storage.open_input("f") as file:
        assert parquet.ParquetFile(file, pre_buffer=True).read() == table
    with pytest.raises(ObjectNotFoundError, match="none does not exist"):
        storage.open_input("none")
    with storage.open_input("f") as file:
        os.truncate(Path(storage.root, "f"), 10)
        with pytest.raises(TruncatedError, match="ends before the requested bytes"):
            parquet.ParquetFile(file)


def test_put_if_absent_keeps_what_is_there(storage: Storage) -> None:
    storage.write_if_absent("f", b"first")
    with pytest.raises(ObjectExistsError, match="exists already") as caught:
        storage.write_if_absent("f", b"second")
    assert caught.value.uri == storage.uri_of("f")
    assert storage.read("f") == b"first"
    assert files_of(storage) == ["f"]


def test_files_are_as_readable_as_the_umask_says(storage: Storage) -> None:
    before = os.umask(0o027)
    try:
        storage.write("a", b"")
        storage.write_if_absent("b", b"")
    finally:
        os.umask(before)
    for name in "ab":
        assert stat.S_IMODE(Path(storage.uri_of(name)).stat().st_mode) == 0o640


def test_a_stale_checksum_of_hadoop_goes_with_the_file_it_was_of(storage: Storage) -> None:
    for change in (storage.write, storage.write_if_absent):
        storage.write("d/f", b"old")
        crc = Path(storage.root, "d", ".f.crc")
        crc.write_bytes(b"of the old content")
        if change == storage.write_if_absent:
            Path(storage.root, "d", "f").unlink()
        change("d/f", b"new")
        assert not crc.exists()
        crc.write_bytes(b"of the new content")
        storage.delete(["d/f"])
        assert files_of(storage) == []


def test_the_checksum_of_another_writers_file_is_kept(storage: Storage) -> None:
    storage.write("f", b"")
    crc = Path(storage.root, ".f.crc")
    crc.write_bytes(b"")
    with pytest.raises(ObjectExistsError):
        storage.write_if_absent("f", b"")
    assert crc.exists()


def test_stat_tells_size_time_and_a_tag_that_changes(storage: Storage) -> None:
    storage.write("f", b"abc")
    os.utime(storage.uri_of("f"), ns=(0, 1_700_000_000_123_456_789))
    first = storage.stat("f")
    assert first[:3] == ("f", 3, 1_700_000_000_123)
    assert list(storage.list()) == [first]
    storage.write("f", b"abc")
    assert storage.stat("f").etag != first.etag


# Ranges


@pytest.mark.parametrize(
    "ranges", [[], [(0, 0)], [(10, 5), (0, 3), (12, 1), (10, 5)], [(99, 1), (0, 100), (100, 0)]]
)
def test_ranges_come_back_in_the_order_asked_for(
    storage: Storage, ranges: list[tuple[int, int]]
) -> None:
    data = bytes(range(100))
    storage.write("f", data)
    assert storage.read_ranges("f", ranges) == tuple(data[s : s + n] for s, n in ranges)
    assert storage.requests.gets == any(n for _, n in ranges)
    # What two ranges share is read once.
    assert storage.requests.bytes_read == len({b for s, n in ranges for b in range(s, s + n)})


@pytest.mark.parametrize(
    "forged", [(90, 11), (100, 1), (101, 5), (0, 2**40), (0, 2**62), (2**62, 2**62), (5, 2**70)]
)
def test_a_range_beyond_the_end_raises_and_reads_nothing(
    storage: Storage, forged: tuple[int, int]
) -> None:
    storage.write("f", b"x" * 100)
    with pytest.raises(TruncatedError, match="the file has 100") as caught:
        storage.read_ranges("f", [(0, 5), forged])
    assert caught.value.path == storage.uri_of("f")
    assert caught.value.offset == forged[0]
    assert caught.value.expected == f"{forged[1]} bytes"
    assert storage.requests.bytes_read == 0


@pytest.mark.parametrize("negative", [(-1, 5), (5, -1), (-5, -5), (-5, 0)])
def test_a_negative_range_is_refused(storage: Storage, negative: tuple[int, int]) -> None:
    storage.write("f", b"x" * 100)
    with pytest.raises(InvalidArgumentError, match="negative"):
        storage.read_range("f", *negative)


# What is not there, or not a file


def test_what_is_absent_is_not_found(storage: Storage) -> None:
    storage.write("file", b"x")
    Path(storage.root, "folder").mkdir()
    for key in ("none", "no/such/folder", "file/below", "folder"):
        assert not storage.exists(key)
        for attempt in (storage.read, storage.size, lambda key: storage.read_range(key, 0, 1)):
            with pytest.raises(ObjectNotFoundError, match="does not exist") as caught:
                attempt(key)
            assert caught.value.uri == storage.uri_of(key)


def test_a_file_that_memory_cannot_hold_is_named(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pread(*_: object) -> bytes:  # a sparse file would do, where memory is not overcommitted
        raise MemoryError

    storage.write("large", b"x")
    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(StorageError, match=r"large has more bytes than fit into memory"):
        storage.read("large")


def test_a_named_pipe_is_not_waited_for(storage: Storage) -> None:
    Path(storage.root).mkdir()
    os.mkfifo(storage.uri_of("pipe"))
    with pytest.raises(ObjectNotFoundError):
        storage.read("pipe")
    assert keys(storage) == []


def test_a_file_is_not_a_folder_to_write_into(storage: Storage) -> None:
    storage.write("file", b"x")
    for change in (storage.write, storage.write_if_absent):
        with pytest.raises(StorageError, match="is a file, not a folder"):
            change("file/below/deeper", b"")
    Path(storage.root, "folder").mkdir()
    with pytest.raises(StorageError):
        storage.write("folder", b"")
    with pytest.raises(ObjectExistsError):
        storage.write_if_absent("folder", b"")
    with pytest.raises(StorageError):
        storage.delete(["folder"])
    assert files_of(storage) == ["file"]


def test_a_name_too_long_for_the_disk_is_a_storage_error(storage: Storage) -> None:
    storage.write("f", b"")
    for attempt in (storage.read, storage.exists, lambda key: storage.write(key, b"")):
        with pytest.raises(StorageError, match="File name too long"):
            attempt("n" * 256)


def test_a_refusal_of_the_disk_is_named(storage: Storage) -> None:
    storage.write("d/f", b"x")
    Path(storage.uri_of("d/f")).chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # root may do everything, nobody may not
    try:
        with pytest.raises(StorageError, match=r"Permission denied\nHint: check the owner"):
            storage.read("d/f")
    finally:
        os.seteuid(user)


def test_errors_of_storage_survive_pickling(storage: Storage) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        storage.read("none")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert type(copy) is ObjectNotFoundError
    assert (str(copy), copy.uri) == (str(caught.value), caught.value.uri)


# Symbolic links


@pytest.fixture
def linked(tmp_path: Path) -> Storage:
    """Give a table with links to a file and a folder outside."""
    outside, table = tmp_path / "outside", tmp_path / "table"
    outside.mkdir()
    table.mkdir()
    (outside / "f").write_bytes(b"outside")
    (table / "folder").symlink_to(outside)
    (table / "file").symlink_to(outside / "f")
    (table / "dangling").symlink_to(outside / "none")
    (table / "loop").symlink_to(table / "loop")
    return Storage.open(table)


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    storage = Storage.open(tmp_path / "link")
    storage.write("a/f", b"1")
    assert storage.read("a/f") == (tmp_path / "real/a/f").read_bytes()
    storage.delete(["a/f"])
    assert not (tmp_path / "real/a/f").exists()


def test_reads_follow_links(linked: Storage) -> None:
    assert linked.read("file") == linked.read("folder/f") == b"outside"
    assert not linked.exists("dangling")
    with pytest.raises(ObjectNotFoundError, match="Too many levels"):
        linked.read("loop")


def test_changes_never_follow_links_out_of_the_root(linked: Storage, tmp_path: Path) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: linked.write("folder/f", b"x"),
        lambda: linked.write("folder/new/f", b"x"),
        lambda: linked.write_if_absent("folder/g", b"x"),
        lambda: linked.delete(["folder/f"]),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError, match="leads out of"):
            attempt()
    with pytest.raises(DelvecError):
        linked.write("loop/f", b"x")
    linked.write("file", b"inside now")
    linked.delete(["folder"])
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["f"]
    assert (tmp_path / "outside/f").read_bytes() == b"outside"


def test_a_link_inside_the_root_is_another_name_of_a_folder(linked: Storage) -> None:
    linked.write("real/f", b"1")
    Path(linked.root, "name").symlink_to(Path(linked.root, "real"))
    linked.write("name/new/g", b"2")
    linked.delete(["name/f"])
    assert keys(linked, "real", recursive=True) == ["real/new/g"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names at once")
def test_a_folder_that_is_swapped_for_a_link_again_and_again_is_never_left(tmp_path: Path) -> None:
    storage, outside = Storage.open(tmp_path / "table"), tmp_path / "outside"
    folder, link = Path(storage.root, "d"), tmp_path / "link"
    names = [f"{number}.parquet" for number in range(1000)]
    for each in (folder, outside):
        (each / "empty").mkdir(parents=True)
        for name in names:
            (each / name).touch()
    link.symlink_to(outside)
    swapper = run(
        """
import ctypes, os
here, exchange = -100, 2
rename = ctypes.CDLL(None).renameat2
folder, link = map(os.fsencode, sys.argv[1:])
while os.getppid() > 1:
    assert rename(here, folder, here, link, exchange) == 0
""",
        *(folder, link),
    )
    release([swapper])
    try:
        for name in names[::5]:
            with suppress(StorageError):
                storage.write(f"d/{name}", b"written")
            with suppress(StorageError):
                storage.write_if_absent(f"d/new-{name}", b"written")
        for _ in range(20):
            with suppress(StorageError):
                storage.delete([f"d/{name}" for name in names])
        storage.remove_empty_folders(lambda _: False)
    finally:
        assert swapper.poll() is None
        swapper.kill()
        swapper.communicate()
    assert sorted(path.name for path in outside.iterdir()) == sorted([*names, "empty"])
    assert not any(path.stat().st_size for path in outside.glob("*.parquet"))


def test_listings_do_not_descend_into_linked_folders(linked: Storage) -> None:
    odd: list[str] = []
    found = [info.key for info in linked.list(recursive=True, on_odd=odd.append)]
    assert found == keys(linked, recursive=True) == ["file"]
    assert odd == ["dangling", "folder", "loop"]
    assert keys(linked, "folder") == ["folder/f"]


# Listing and deleting


@pytest.mark.more
def test_folders_may_be_nested_deeper_than_calls_and_names(storage: Storage) -> None:
    storage.write("a/f", b"1")
    storage.write("z/f", b"1")
    here = os.open(storage.root, os.O_RDONLY)
    try:
        for _ in range(3000):  # by names that are longer than the system takes at once
            os.mkdir("deep", dir_fd=here)
            below = os.open("deep", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        odd: list[str] = []
        assert [info.key for info in storage.list(recursive=True, on_odd=odd.append)] == [
            "a/f",
            "z/f",
        ]
        assert [set(each.split("/")) for each in odd] == [{"deep"}]
        assert storage.remove_empty_folders(lambda _: False) == ()
    finally:
        os.close(here)
        # Python's own way of removing it would be too deep as well.
        subprocess.run(["rm", "-rf", f"{storage.root}/deep"], check=True)


def test_listings_are_sorted_by_whole_keys(storage: Storage) -> None:
    names = ["B", "a", "a-b/x", "a.b", "a b", "a0", "b/c/d", "b/c-d", "b/c.d/e", "é", "_x/y"]
    for name in names:
        storage.write(f"dir/{name}", b"x")
    everything = sorted(f"dir/{name}" for name in names)
    assert keys(storage, recursive=True) == keys(storage, "dir/", recursive=True) == everything
    assert keys(storage, "dir") == [key for key in everything if key.count("/") == 1]
    assert keys(storage) == keys(storage, "none") == keys(storage, "dir/a0") == []
    for start in [*names, "a-", "b/c-", "b/c-d/x", "zz"]:
        expected = [key for key in everything if key >= f"dir/{start}"]
        assert keys(storage, "dir", start_from=start, recursive=True) == expected


def test_listing_from_a_name_includes_it(storage: Storage) -> None:
    log = [f"_delta_log/{version:020}.json" for version in range(12)]
    for key in [*log, "_delta_log/_last_checkpoint", "_delta_log/_sidecars/1"]:
        storage.write(key, b"x")
    tail = [*log[10:], "_delta_log/_last_checkpoint"]
    for start in (f"{10:020}.json", f"{10:020}.", f"{9:020}.jsonx"):
        assert keys(storage, "_delta_log", start_from=start) == tail
    assert keys(storage, "_delta_log", start_from="zz") == []


def test_a_listing_survives_deletions_under_way(storage: Storage) -> None:
    for name in "abc":
        storage.write(f"d/{name}", b"x")
    listing = storage.list("d")
    assert next(listing).key == "d/a"
    storage.delete(["d/b", "d/c"])
    assert list(listing) == []


def test_deleting_what_is_not_there_is_fine(storage: Storage) -> None:
    storage.write("a", b"")
    storage.delete([])
    storage.delete(key for key in ["none", "a", "no/such/folder", "a/below"])
    assert files_of(storage) == []


# Requests


def test_requests_are_counted(storage: Storage) -> None:
    storage.write("a", b"12345")
    before = storage.requests
    storage.write_if_absent("b/c", b"1")
    storage.read("a")
    storage.read_ranges("a", [(1, 2), (4, 1)])
    storage.size("a")
    keys(storage)
    keys(storage, recursive=True)
    storage.delete(["a", "b/c"])
    assert storage.requests - before == RequestCounts(
        gets=2, heads=1, puts=1, lists=3, deletes=2, bytes_read=8, bytes_written=1
    )
    assert before == RequestCounts(puts=1, bytes_written=5)


def test_threads_lose_no_counts(storage: Storage) -> None:
    storage.write("f", b"12")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: storage.read("f"), range(2000)))
    assert storage.requests == RequestCounts(gets=2000, puts=1, bytes_read=4000, bytes_written=2)


def test_a_pickled_copy_works_and_counts_for_itself(storage: Storage) -> None:
    storage.write("f", b"abc")
    copy = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes
    assert copy == storage
    assert copy.requests == RequestCounts()
    assert copy.read("f") == b"abc"
    assert storage.requests.gets == 0


# Races and crashes


def test_of_racing_threads_exactly_one_wins(storage: Storage) -> None:
    threads, names = 8, [f"log/{number:020}.json" for number in range(100)]
    barrier = Barrier(threads)

    def race(writer: int) -> list[str]:
        won = []
        for name in names:
            barrier.wait()
            try:
                storage.write_if_absent(name, bytes([writer]) * 5000)
            except ObjectExistsError:
                continue
            won.append(name)
        return won

    with ThreadPoolExecutor(threads) as pool:
        wins = list(pool.map(race, range(threads)))
    assert sorted(name for won in wins for name in won) == names
    for writer, won in enumerate(wins):
        assert all(storage.read(name) == bytes([writer]) * 5000 for name in won)
    assert files_of(storage) == names


def test_of_racing_processes_exactly_one_wins(storage: Storage) -> None:
    code = """
storage, writer = Storage.open(sys.argv[1]), int(sys.argv[2])
for number in range(200):
    try:
        storage.write_if_absent(f"log/{number:03}", bytes([writer]) * 5000)
        print(f"log/{number:03}")
    except FileExistsError:
        pass
"""
    processes = [run(code, storage.root, writer) for writer in range(4)]
    release(processes)
    wins = [finish(process).split() for process in processes]
    names = [f"log/{number:03}" for number in range(200)]
    assert sorted(name for won in wins for name in won) == names
    for writer, won in enumerate(wins):
        assert all(storage.read(name) == bytes([writer]) * 5000 for name in won)
    assert files_of(storage) == names


def test_a_killed_writer_leaves_whole_files_or_none(storage: Storage) -> None:
    size = 4 << 20
    code = f"""
storage = Storage.open(sys.argv[1])
for number in range(10_000):
    storage.write_if_absent(f"{{sys.argv[2]}}-{{number}}", bytes([number % 256]) * {size})
    storage.write("latest", bytes([number % 256]) * {size})
"""
    processes = [run(code, storage.root, writer) for writer in range(5)]
    for process in processes:
        release([process])
        deadline = time.monotonic() + 20
        seen = len(files_of(storage))
        while len(files_of(storage)) < seen + 3 and time.monotonic() < deadline:
            time.sleep(0.003)
        process.send_signal(signal.SIGKILL)
        with process:
            assert process.wait() == -signal.SIGKILL
    visible = [name for name in files_of(storage) if not name.startswith(".")]
    assert len(visible) >= 6
    for name in visible:
        data = storage.read(name)
        assert len(data) == size
        assert data == data[:1] * size
        if name != "latest":
            assert data[0] == int(name.partition("-")[2]) % 256
    hidden = set(files_of(storage)) - set(visible)
    assert all(name.startswith(STAGED_PREFIX) for name in hidden)


# Options of object stores


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nonsense": "x"}, "nonsense"),
        ({"AWS_REGION": "a", "region": "b"}, "Duplicate"),
        ({"max_retries": "many"}, "max_retries must be a number"),
        ({"retry_timeout": "soon"}, "retry_timeout must be a duration"),
    ],
)
def test_wrong_options_are_refused_when_a_storage_is_opened(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Storage.open("s3://lake/t", options)


@pytest.mark.parametrize(
    "options",
    [
        {"AWS_CONDITIONAL_PUT": "disabled"},
        {"conditional_put": "dynamo:locks"},
        {"aws_s3_locking_provider": "dynamodb"},
    ],
)
def test_options_that_make_commits_unsafe_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="Hint"):
        Storage.open("s3://lake/t", options)


def test_options_of_deltalake_are_understood() -> None:
    config, client, retry = split_options(
        "s3a",
        {
            "AWS_ACCESS_KEY_ID": "k",
            "aws_conditional_put": "etag",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
            "AWS_ALLOW_HTTP": "true",
            "connect_timeout": "5s",
            "proxy_url": "http://proxy",
            "max_retries": "3",
            "retry_timeout": "2m",
            "backoff_config.init_backoff": "500ms",
            "backoff_config.base": "1.5",
        },
    )
    assert config == {"aws_access_key_id": "k", "conditional_put": "etag"}
    assert client == {"allow_http": "true", "connect_timeout": "5s", "proxy_url": "http://proxy"}
    assert {key: str(value) for key, value in retry.items() if key != "backoff"} == {
        "max_retries": "3",
        "retry_timeout": "0:02:00",
    }
    assert str(retry["backoff"]) == (
        "{'init_backoff': datetime.timedelta(microseconds=500000), 'base': 1.5}"
    )


def test_all_options_of_deltalake_open_a_store() -> None:
    Storage.open(
        "s3://lake/t",
        {
            "AWS_ALLOW_HTTP": True,
            "timeout": "30s",
            "max_retries": 3,
            "retry_timeout": "10",
            "backoff_config.max_backoff": "3s",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": False,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        },
    )


def test_conditional_puts_do_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    store = Storage.open("s3://lake/t")._backend._store  # type: ignore[union-attr]
    assert store.config["conditional_put"] == "etag"  # type: ignore[typeddict-item]


def test_local_disk_needs_no_options(storage: Storage) -> None:
    Storage.open(storage.root, {"AWS_ACCESS_KEY_ID": "k", "nonsense": "x"}).write("f", b"")


CLIENT = "fs.azure.account.oauth2.client"
AZURE = "abfss://c@acc.dfs.core.windows.net/t"
HOST = "acc.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("uri", "conf", "options"),
    [
        ("/data/t", {"fs.s3a.access.key": "k"}, {}),
        ("file:///data/t", {"fs.s3a.access.key": "k"}, {}),
        ("s3a://lake/t", {}, {}),
        (
            "s3a://lake/t",
            {
                "fs.s3a.access.key": " k ",
                "fs.s3a.secret.key": "s",
                "fs.s3a.session.token": "t",
                "fs.s3a.endpoint": "",
                "fs.s3a.endpoint.region": "eu-west-1",
            },
            {
                "aws_access_key_id": "k",
                "aws_secret_access_key": "s",
                "aws_session_token": "t",
                "aws_region": "eu-west-1",
            },
        ),
        (
            "s3://lake/t",
            {
                "fs.s3a.access.key": "all",
                "fs.s3a.secret.key": "all",
                "fs.s3a.bucket.lake.access.key": "lake",
                "fs.s3a.bucket.sea.secret.key": "sea",
            },
            {"aws_access_key_id": "lake", "aws_secret_access_key": "all"},
        ),
        (
            "s3a://lake/t",
            {"fs.s3a.endpoint": "http://127.0.0.1:9000", "fs.s3a.path.style.access": "true"},
            {"aws_endpoint": "http://127.0.0.1:9000", "allow_http": "true"},
        ),
        (
            "s3a://lake/t",
            {"fs.s3a.endpoint": "minio:9000/", "fs.s3a.connection.ssl.enabled": "false"}
            | {"fs.s3a.path.style.access": "TRUE"},
            {"aws_endpoint": "http://minio:9000", "allow_http": "true"},
        ),
        (
            "s3a://lake/t",
            {"fs.s3a.endpoint": "oss.example.com"},
            {
                "aws_endpoint": "https://lake.oss.example.com",
                "aws_virtual_hosted_style_request": "true",
            },
        ),
        (
            "s3a://lake/t",
            {"fs.s3a.endpoint": "http://[::1]:9000"},
            {"aws_endpoint": "http://[::1]:9000", "allow_http": "true"},
        ),
        (
            "s3a://my.lake/t",
            {"fs.s3a.endpoint": "https://oss.example.com"},
            {"aws_endpoint": "https://oss.example.com"},
        ),
        ("s3a://lake/t", {"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        (
            "s3a://lake/t",
            {"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"},
            {"aws_region": "eu-west-1"},
        ),
        (
            "s3a://lake/t",
            {"fs.s3a.endpoint": "https://s3-eu-west-1.amazonaws.com"}
            | {"fs.s3a.endpoint.region": "eu-west-2"},
            {"aws_region": "eu-west-2"},
        ),
        (
            "s3a://lake/t",
            {
                "fs.s3a.aws.credentials.provider": (
                    "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
                ),
                "fs.s3a.access.key": "not used",
            },
            {"aws_skip_signature": "true"},
        ),
        (
            "s3a://lake/t",
            {
                "fs.s3a.aws.credentials.provider": (
                    "a.SimpleAWSCredentialsProvider, b.AnonymousAWSCredentialsProvider"
                ),
                "fs.s3a.access.key": "k",
            },
            {"aws_access_key_id": "k"},
        ),
        (
            "s3a://lake/t",
            {
                "fs.s3a.bucket.lake.aws.credentials.provider": (
                    "a.SimpleAWSCredentialsProvider,\n software.AnonymousCredentialsProvider"
                )
            },
            {"aws_skip_signature": "true"},
        ),
        (
            "gs://lake/t",
            {"fs.gs.auth.service.account.json.keyfile": "/k.json"},
            {"google_service_account": "/k.json"},
        ),
        (
            "gs://lake/t",
            {"google.cloud.auth.service.account.json.keyfile": "/k.json"},
            {"google_service_account": "/k.json"},
        ),
        ("gs://lake/t", {"fs.gs.auth.type": "UNAUTHENTICATED"}, {"google_skip_signature": "true"}),
        (
            AZURE,
            {f"fs.azure.account.key.{HOST}": "key", "fs.azure.account.key": "general"},
            {"azure_storage_account_key": "key"},
        ),
        (AZURE, {"fs.azure.account.key": "general"}, {"azure_storage_account_key": "general"}),
        (AZURE, {"fs.azure.account.key.other.dfs.core.windows.net": "key"}, {}),
        (AZURE, {f"fs.azure.sas.fixed.token.{HOST}": "sas"}, {"azure_storage_sas_token": "sas"}),
        (
            AZURE,
            {f"fs.azure.sas.fixed.token.c.{HOST}": "of c", f"fs.azure.sas.fixed.token.{HOST}": "s"},
            {"azure_storage_sas_token": "of c"},
        ),
        (
            AZURE,
            {
                f"{CLIENT}.id.{HOST}": "id",
                f"{CLIENT}.secret": "secret",
                f"{CLIENT}.endpoint.{HOST}": "https://login.example.com/tenant/oauth2/token",
            },
            {
                "azure_client_id": "id",
                "azure_client_secret": "secret",
                "azure_tenant_id": "tenant",
                "azure_authority_host": "https://login.example.com",
            },
        ),
        (
            AZURE,
            {
                f"fs.azure.account.auth.type.{HOST}": "SAS",
                f"fs.azure.account.key.{HOST}": "key",
                f"fs.azure.sas.fixed.token.{HOST}": "sas",
            },
            {"azure_storage_sas_token": "sas"},
        ),
        ("az://c/t", {"fs.azure.account.key": "key"}, {"azure_storage_account_key": "key"}),
    ],
)
def test_a_hadoop_configuration_is_translated(
    uri: str, conf: dict[str, str], options: dict[str, str]
) -> None:
    assert options_from_hadoop(uri, conf.get) == options


@pytest.mark.parametrize(
    ("uri", "conf"),
    [
        ("s3a://lake/t", {"fs.s3a.endpoint": "http://oss.example.com"}),
        ("s3a://lake/t", {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}),
        ("s3a://lake/t", {"fs.s3a.aws.credentials.provider": "a.AnonymousAWSCredentialsProvider"}),
        ("gs://lake/t", {"fs.gs.auth.type": "UNAUTHENTICATED"}),
        (AZURE, {"fs.azure.account.key": "a2V5"}),
        (AZURE, {"fs.azure.sas.fixed.token": "sv=1&sig=x"}),
        (
            AZURE,
            {f"{CLIENT}.id": "i", f"{CLIENT}.secret": "s", f"{CLIENT}.endpoint": "https://a/t/"},
        ),
    ],
)
def test_translated_options_open_a_store(uri: str, conf: dict[str, str]) -> None:
    assert Storage.open(uri, hadoop=conf.get).root == uri


@pytest.mark.parametrize(
    ("explicit", "merged"),
    [
        (
            {},
            {"aws_access_key_id", "aws_session_token", "aws_endpoint", "allow_http", "aws_region"},
        ),
        ({"REGION": "r"}, {"aws_access_key_id", "aws_session_token", "aws_endpoint", "allow_http"}),
        ({"AWS_ACCESS_KEY_ID": "k"}, {"aws_endpoint", "allow_http", "aws_region"}),
        ({"skip_signature": "true"}, {"aws_endpoint", "allow_http", "aws_region"}),
        (
            {"AWS_ENDPOINT_URL": "https://x"},
            {"aws_access_key_id", "aws_session_token", "aws_region"},
        ),
        ({"aws_allow_http": "false"}, {"aws_access_key_id", "aws_session_token", "aws_region"}),
    ],
)
def test_explicit_options_replace_those_of_hadoop(
    explicit: dict[str, str], merged: set[str]
) -> None:
    hadoop = dict.fromkeys(
        ["aws_access_key_id", "aws_session_token", "aws_endpoint", "allow_http", "aws_region"], "h"
    )
    assert merge_options(hadoop, explicit) == {**dict.fromkeys(merged, "h"), **explicit}


def test_a_folder_is_deleted_with_all_below_it_and_no_link_is_followed(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path / "table")
    for key in ("new/a=1/x.parquet", "new/.x.parquet.crc", "new/_temporary/0/y", "newer/z"):
        storage.write(key, b"1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"1")
    (tmp_path / "table" / "new" / "link").symlink_to(outside)
    (tmp_path / "table" / "linked").symlink_to(outside)
    storage.delete_folder("new")
    storage.delete_folder("linked")
    storage.delete_folder("never there")
    assert sorted(each.name for each in (tmp_path / "table").iterdir()) == ["linked", "newer"]
    assert (outside / "kept").exists()


def test_folders_are_found_and_empty_ones_removed(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/d", "_x/y", "e%20f"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/d/file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    storage = Storage.open(tmp_path)
    assert storage.folders() == ("_x", "a", "e%20f")
    assert storage.folders("a") == storage.folders("a/") == ("a/b", "a/d")
    assert storage.folders("nothing") == ()
    removed = storage.remove_empty_folders(lambda key: key.startswith("_"))
    assert set(removed) == {"a/b/c", "a/b", "e%20f"}
    assert removed.index("a/b/c") < removed.index("a/b")
    assert storage.folders("a") == ("a/d",)
    assert (tmp_path / "_x/y").is_dir()
