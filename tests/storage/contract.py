"""What every storage does, on a disk as in a bucket."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from delvec.errors import ObjectExistsError, ObjectNotFoundError, TruncatedError
from delvec.storage import RequestCounts, Storage

ODD_NAMES = [
    *("a b", "a%20b", "100%", "a#b", "a#1", "a?b", "a+b", "a[b]", "a*b", "a&b", "~x", "x%2Fy"),
    *("é☃", ".hidden", "_under", "c=x:y/f", "part=a%20b/f", "p='q'", "a=b;c,d", "..x", "x."),
]


def keys(storage: Storage, folder: str = "", **options: str | bool) -> list[str]:
    return [info.key for info in storage.list(folder, **options)]  # type: ignore[arg-type]


def copied(storage: Storage) -> Storage:
    """Return what a task gets."""
    copy: Storage = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes
    return copy


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def require_literal(storage: Storage, folder: Path, key: str) -> None:
    """Write, find and delete a file whose name means nothing but itself."""
    storage.write_if_absent(key, b"1")
    assert files_of(folder) == [key]
    assert storage.read(key) == b"1"
    assert storage.exists(key)
    assert keys(storage, recursive=True) == [key]
    assert keys(storage, start_from=key, recursive=True) == [key]
    storage.write(key, b"2")
    storage.delete([key])
    assert files_of(folder) == keys(storage, recursive=True) == []


class StorageContract:
    """Tests of a `storage` whose bytes are in a `folder`."""

    def test_what_is_written_is_read_back(self, storage: Storage, folder: Path) -> None:
        storage.write("a/1.bin", b"old")
        storage.write("a/1.bin", memoryview(b"0123456789abcdef").cast("q"))
        assert storage.read("a/1.bin") == b"0123456789abcdef"
        assert storage.read_range("a/1.bin", 3, 4) == b"3456"
        assert storage.size("a/1.bin") == 16
        assert storage.exists("a/1.bin")
        assert not storage.exists("a")
        assert files_of(folder) == ["a/1.bin"]
        assert (folder / "a/1.bin").read_bytes() == b"0123456789abcdef"
        assert storage.requests.bytes_written == 19

    def test_an_empty_file_is_a_file(self, storage: Storage) -> None:
        storage.write_if_absent("empty", b"")
        assert storage.read("empty") == storage.read_range("empty", 0, 0) == b""
        assert storage.exists("empty")

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_names_are_literal(self, storage: Storage, folder: Path, name: str) -> None:
        require_literal(storage, folder, f"d/{name}")

    def test_put_if_absent_keeps_what_is_there(self, storage: Storage, folder: Path) -> None:
        storage.write_if_absent("f", b"first")
        with pytest.raises(ObjectExistsError, match="exists already") as caught:
            storage.write_if_absent("f", b"second")
        assert caught.value.uri == storage.uri_of("f")
        assert storage.read("f") == b"first"
        assert files_of(folder) == ["f"]

    def test_of_racing_threads_exactly_one_wins(self, storage: Storage, folder: Path) -> None:
        threads, names = 4, [f"log/{number:020}.json" for number in range(50)]
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
        assert sorted(name for won in wins for name in won) == files_of(folder) == names
        for writer, won in enumerate(wins):
            assert all(storage.read(name) == bytes([writer]) * 5000 for name in won)
        assert storage.requests.puts == threads * len(names)

    @pytest.mark.parametrize(
        "forged", [(90, 11), (100, 1), (101, 5), (0, 2**40), (0, 2**62), (2**62, 2**62), (5, 2**70)]
    )
    def test_a_range_beyond_the_end_is_not_read(
        self, storage: Storage, forged: tuple[int, int]
    ) -> None:
        storage.write("f", b"x" * 100)
        for ranges in ([forged], [(0, 5), forged], [(2, 1), (2 << 20, 3), forged]):
            with pytest.raises(TruncatedError, match="the file has 100") as caught:
                storage.read_ranges("f", ranges)
            assert caught.value.path == storage.uri_of("f")
        with pytest.raises(TruncatedError) as caught:
            storage.read_range("f", *forged)
        assert (caught.value.offset, caught.value.expected) == (forged[0], f"{forged[1]} bytes")
        assert storage.requests.bytes_read < 100

    def test_what_is_absent_is_not_found(self, storage: Storage) -> None:
        storage.write("folder/f", b"x")
        for key in ("none", "no/such/folder", "folder/f/below", "folder"):
            assert not storage.exists(key)
            for attempt in (storage.read, storage.size, lambda key: storage.read_range(key, 0, 1)):
                with pytest.raises(ObjectNotFoundError, match="does not exist") as caught:
                    attempt(key)
                assert caught.value.uri == storage.uri_of(key)

    def test_listings_are_sorted_by_whole_keys(self, storage: Storage) -> None:
        names = ["B", "a", "a-b/x", "a.b", "a b", "a0", "b/c/d", "b/c-d", "b/c.d/e", "é", "_x/y"]
        for name in names:
            storage.write(f"dir/{name}", b"x")
        everything = sorted(f"dir/{name}" for name in names)
        assert keys(storage, recursive=True) == keys(storage, "dir/", recursive=True) == everything
        flat = [key for key in everything if key.count("/") == 1]
        assert keys(storage, "dir") == keys(storage, "dir/") == flat
        for absent in ("", "none", "di", "dir/a0"):
            assert keys(storage, absent) == []
        for start in [*names, "a-", "b/c-", "b/c-d/x", "zz"]:
            below = [key for key in everything if key >= f"dir/{start}"]
            assert keys(storage, "dir", start_from=start, recursive=True) == below
            flat_below = [key for key in flat if key >= f"dir/{start}"]
            assert keys(storage, "dir", start_from=start) == flat_below

    def test_deleting_what_is_not_there_is_fine(self, storage: Storage, folder: Path) -> None:
        storage.write("a", b"")
        storage.delete([])
        storage.delete(key for key in ["none", "a", "no/such/folder"])
        assert files_of(folder) == []

    def test_a_pickled_copy_works_and_counts_for_itself(self, storage: Storage) -> None:
        storage.write("f", b"abc")
        copy = copied(storage)
        assert copy == storage
        assert copy.requests == RequestCounts()
        assert copy.read("f") == b"abc"
        assert storage.requests.gets == 0
