"""`delvec.storage` against an S3 server on loopback."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from delvec.errors import InvalidArgumentError, ObjectNotFoundError, StorageError, TruncatedError
from delvec.storage import RequestCounts, Storage
from tests.s3.server import S3Server
from tests.storage.contract import StorageContract, keys
from tests.storage.test_places import OPERATIONS, Operation

pytestmark = pytest.mark.s3

MIB = 1 << 20


@pytest.fixture
def storage(s3: S3Server) -> Storage:
    return Storage.open(f"s3://lake/{uuid4().hex}/my table/", s3.storage_options)


@pytest.fixture
def folder(storage: Storage, s3: S3Server) -> Path:
    return s3.folder / storage.root.removeprefix("s3://")


class TestInABucket(StorageContract):
    pass


def test_an_input_makes_a_request_for_each_read_and_none_for_what_was_prefetched(
    storage: Storage,
) -> None:
    data = bytes(range(256)) * 20_000
    storage.write("f", data)
    before = storage.requests
    with storage.open_input("f", size=len(data)) as file:
        assert storage.requests == before
        assert (file.seek(-10, 2), file.read(20)) == (len(data) - 10, data[-10:])
        file.prefetch([(100, 1000), (3 * MIB, 500)])
        file.seek(3 * MIB)
        assert file.read(500) == data[3 * MIB :][:500]
        file.seek(100)
        assert file.read(1000) == data[100:1100]
    spent = storage.requests - before
    assert (spent.gets, spent.heads, spent.bytes_read) == (3, 0, 1510)
    (listed,), stat = storage.list(), storage.stat("f")
    assert (*listed[:2], listed.etag) == (*stat[:2], stat.etag) == ("f", len(data), stat.etag)
    assert listed.modified_ms // 1000 == stat.modified_ms // 1000
    before = storage.requests
    with storage.open_input("f") as file:
        assert file.size() == len(data)
    assert storage.requests.heads == before.heads + 1
    with storage.open_input("f", size=len(data) + 1) as file, pytest.raises(TruncatedError):
        file.read()
    with storage.open_input("gone", size=10) as file, pytest.raises(ObjectNotFoundError):
        file.read()


def test_a_large_object_goes_up_in_parts(storage: Storage, s3: S3Server) -> None:
    data = bytes(range(256)) * (33 * MIB // 256)
    before = s3.requests()
    storage.write("large", data)
    assert storage.read("large") == data
    done = s3.requests() - before
    assert done["s3_UploadPart"] == 3
    assert storage.requests.puts == 5 == sum(done.values()) - done["s3_GetObject"]


@pytest.mark.parametrize("key", ["a\nb", "a\udcffb"])
def test_keys_that_object_stores_cannot_hold_are_refused(storage: Storage, key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a valid name of an object"):
        storage.write(key, b"")


def test_close_ranges_share_a_request_and_far_ones_do_not(storage: Storage, s3: S3Server) -> None:
    data = bytes(i % 251 for i in range(4 * MIB))
    storage.write("f", data)
    for ranges, gets in [
        ([(10, 5), (0, 3), (12, 1), (10, 5)], 1),
        ([(0, 10), (3 * MIB, 10)], 2),
        ([(0, 10), (0, 0), (3 * MIB, 10), (MIB // 2, 7), (4 * MIB - 1, 1)], 2),
        ([(5, 0)], 0),
        ([], 0),
    ]:
        before, seen = storage.requests, s3.requests()
        assert storage.read_ranges("f", ranges) == tuple(data[s : s + n] for s, n in ranges)
        assert (storage.requests - before).gets == gets
        assert (s3.requests() - seen)["s3_GetObject"] == gets


def test_listing_from_a_name_includes_it_and_leaps_folders(storage: Storage, s3: S3Server) -> None:
    log = [f"_delta_log/{version:020}.json" for version in range(12)]
    sidecars = [f"_delta_log/_sidecars/{number}" for number in range(30)]
    rest = ["_delta_log/_last_checkpoint", "_delta_log/_staged_commits/1", "_delta_log/z"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: storage.write(key, b"x"), [*log, *sidecars, *rest]))
    tail = [*log[10:], "_delta_log/_last_checkpoint", "_delta_log/z"]
    before = s3.requests()
    assert keys(storage, "_delta_log", start_from=f"{10:020}.json") == tail
    assert (s3.requests() - before)["s3_ListObjectsV2"] == storage.requests.lists == 3
    assert keys(storage, "_delta_log", start_from=f"{10:020}.") == tail
    assert keys(storage, "_delta_log", start_from=f"{9:020}.jsonx") == tail
    assert keys(storage, "_delta_log", start_from="zz") == []
    assert keys(storage, "_delta_log", start_from=".a")[:2] == log[:2]
    below = keys(storage, "_delta_log", start_from="_sidecars/3", recursive=True)
    assert below == sorted([*(s for s in sidecars if s >= "_delta_log/_sidecars/3"), *rest[1:]])


def test_a_listing_is_fetched_page_by_page(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: storage.write(f"{number:05}", b"x"), range(1005)))
    listing = storage.list(recursive=True)
    assert storage.requests.lists == 0
    assert next(listing).key == "00000"
    assert storage.requests.lists == 1
    assert len(list(listing)) == 1004
    assert storage.requests.lists == 2
    storage.delete(info.key for info in storage.list())
    assert storage.requests.deletes == 2
    assert keys(storage) == []


def test_requests_are_counted_as_the_server_counts_them(storage: Storage, s3: S3Server) -> None:
    before = s3.requests()
    storage.write("a", b"12345")
    storage.write_if_absent("b", b"1")
    storage.read("a")
    storage.read_range("a", 1, 2)
    storage.size("a")
    keys(storage)
    keys(storage, recursive=True)
    storage.delete(["a", "b"])
    assert s3.requests() - before == Counter(
        s3_PutObject=2, s3_GetObject=2, s3_HeadObject=1, s3_ListObjectsV2=2, s3_DeleteObjects=1
    )
    assert storage.requests == RequestCounts(
        gets=2, heads=1, puts=2, lists=2, deletes=1, bytes_read=7, bytes_written=6
    )


@pytest.mark.parametrize("wrong", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_named_as_such(s3: S3Server, wrong: str) -> None:
    storage = Storage.open("s3://lake/t", {**s3.storage_options, wrong: "something-else"})
    more: list[Operation] = [partial(keys, recursive=True), lambda it: it.delete(["f"])]
    for operation in [*OPERATIONS, *more]:
        with pytest.raises(StorageError, match=r"Hint: .* credentials") as caught:
            operation(storage)
        assert type(caught.value) is StorageError
        assert "something-else" not in str(caught.value)


def test_an_absent_bucket_is_not_an_absent_object_and_tls_is_asked_for(s3: S3Server) -> None:
    options = {**s3.storage_options, "AWS_ALLOW_HTTP": "false"}
    with pytest.raises(StorageError, match="Hint: for an endpoint without TLS set allow_http"):
        Storage.open("s3://lake/t", options).read("f")
    storage = Storage.open("s3://no-such-bucket/t", s3.storage_options)
    with pytest.raises(StorageError, match="NoSuchBucket") as caught:
        storage.read("f")
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_a_hadoop_configuration_gives_a_connection_and_explicit_options_win(s3: S3Server) -> None:
    conf = s3.hadoop_configuration
    for scheme in ("s3", "s3a", "s3n"):
        storage = Storage.open(f"{scheme}://lake/hadoop", hadoop=conf.get)
        storage.write(scheme, b"1")
        assert storage.read(scheme) == b"1"
        assert storage.uri_of("f") == f"{scheme}://lake/hadoop/f"
    good = {"access_key_id": s3.access_key, "aws_secret_access_key": s3.secret_key}
    wrong = {**conf, "fs.s3a.access.key": "x", "fs.s3a.session.token": "x"}
    Storage.open("s3a://lake/explicit", good, hadoop=wrong.get).write("f", b"")
    bad = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with pytest.raises(StorageError, match="credentials"):
        Storage.open("s3a://lake/explicit", bad, hadoop=conf.get).write("f", b"")


def test_the_root_of_a_bucket_can_be_the_root(s3: S3Server) -> None:
    s3.create_bucket("whole")
    storage = Storage.open("s3://whole", s3.storage_options)
    storage.write("a", b"1")
    storage.write("b/c", b"2")
    assert storage.uri_of("a") == "s3://whole/a"
    assert keys(storage) == ["a"]
    assert keys(storage, recursive=True) == ["a", "b/c"]
    assert keys(storage, start_from="b", recursive=True) == ["b/c"]
