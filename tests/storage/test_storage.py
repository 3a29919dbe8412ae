"""`delvec.storage` on local disk, and the options of object stores; no server is needed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

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
from tests.storage.contract import StorageContract, files_of, keys, require_literal

BAD_KEYS = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/", "a/./b", "a\\b", "a\0"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(tmp_path / "my table%20#1")


@pytest.fixture
def folder(storage: Storage) -> Path:
    return Path(storage.root)


class TestOnADisk(StorageContract):
    pass


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


def test_a_uri_of_an_unknown_scheme_or_of_nothing_is_refused() -> None:
    for uri in ("hdfs://host/t", "dbfs:/t", "http://host/t", "C:/t", "wasbs://c@a"):
        with pytest.raises(UnsupportedFeatureError, match=r"Hint: .* file, s3, s3a, s3n, gs, abfs"):
            Storage.open(uri)
    places = ("", "a\0b", "file://host/t", "s3:///t", "s3:/t", "s3://lake/../t", "gs://c@a/t")
    for uri in (*places, "s3://b?c/t"):
        with pytest.raises(InvalidArgumentError):
            Storage.open(uri)


def test_credentials_are_not_shown_and_refused_in_a_uri() -> None:
    options = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "SECRET"}
    storage = Storage.open("s3://lake/t", options)
    assert repr(storage) == str(storage) == "Storage(root='s3://lake/t')"
    with pytest.raises(InvalidArgumentError, match="storage_options") as caught:
        Storage.open("s3a://AKIA:SECRET@lake/t")
    assert "SECRET" not in str(caught.value)


# Reading and writing


@pytest.mark.parametrize(
    "name", ["%", "a{b}", "p='q\"", "a\nb", "a^b`c|d<e>", "a\udcffb", "n" * 255]
)
def test_names_are_literal(storage: Storage, folder: Path, name: str) -> None:
    require_literal(storage, folder, f"d/{name}")


@pytest.mark.parametrize("key", BAD_KEYS)
def test_keys_that_leave_the_root_are_refused(storage: Storage, key: str) -> None:
    attempts: dict[str, tuple[object, ...]] = {
        **dict.fromkeys(("read", "open_input", "stat", "exists", "uri_of"), (key,)),
        **dict.fromkeys(("write", "write_if_absent"), (key, b"")),
        "read_range": (key, 0, 1),
        "delete": (["fine", key],),
    }
    for name, arguments in attempts.items():
        with pytest.raises(InvalidArgumentError, match="cannot be a key"):
            getattr(storage, name)(*arguments)
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


def test_files_have_the_mode_of_the_umask_and_stat_tells_size_time_and_a_tag_that_changes(
    storage: Storage,
) -> None:
    before = os.umask(0o027)
    try:
        storage.write("f", b"abc")
        storage.write_if_absent("g", b"")
    finally:
        os.umask(before)
    assert {Path(storage.uri_of(name)).stat().st_mode & 0o7777 for name in "fg"} == {0o640}
    os.utime(storage.uri_of("f"), ns=(0, 1_700_000_000_123_456_789))
    first = storage.stat("f")
    assert first[:3] == ("f", 3, 1_700_000_000_123)
    assert next(storage.list()) == first
    storage.write("f", b"abc")
    assert storage.stat("f").etag != first.etag


def test_a_checksum_of_hadoop_goes_with_the_file_that_it_is_of(storage: Storage) -> None:
    crc = Path(storage.root, "d", ".f.crc")
    for change in (storage.write, storage.write_if_absent):
        storage.write("d/f", b"old")
        crc.write_bytes(b"of the old content")
        with pytest.raises(ObjectExistsError):
            storage.write_if_absent("d/f", b"of a loser")
        assert crc.exists()
        if change == storage.write_if_absent:
            Path(storage.root, "d", "f").unlink()
        change("d/f", b"new")
        assert not crc.exists()
        crc.write_bytes(b"of the new content")
        storage.delete(["d/f"])
        assert not crc.exists()


@pytest.mark.parametrize(
    "ranges", [[], [(0, 0)], [(10, 5), (0, 3), (12, 1), (10, 5)], [(99, 1), (0, 100), (100, 0)]]
)
def test_ranges_come_in_the_order_asked(storage: Storage, ranges: list[tuple[int, int]]) -> None:
    data = bytes(range(100))
    storage.write("f", data)
    assert storage.read_ranges("f", ranges) == tuple(data[s : s + n] for s, n in ranges)
    assert storage.requests.gets == any(n for _, n in ranges)
    # What two ranges share is read once.
    assert storage.requests.bytes_read == len({b for s, n in ranges for b in range(s, s + n)})
    for negative in ((-1, 5), (5, -1), (-5, -5), (-5, 0)):
        with pytest.raises(InvalidArgumentError, match="negative"):
            storage.read_range("f", *negative)


# What is not there, or not a file


def test_a_file_too_large_for_memory_is_named(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pread(*_: object) -> bytes:  # a sparse file would do, where memory is not overcommitted
        raise MemoryError

    storage.write("large", b"x")
    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(StorageError, match=r"large has more bytes than fit into memory"):
        storage.read("large")


def test_a_file_is_not_a_folder_and_a_pipe_is_no_file(storage: Storage) -> None:
    storage.write("file", b"x")
    os.mkfifo(storage.uri_of("pipe"))
    with pytest.raises(ObjectNotFoundError):
        storage.read("pipe")
    assert keys(storage) == ["file"]
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
    assert files_of(Path(storage.root)) == ["file"]


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


def test_reads_follow_links(linked: Storage) -> None:
    assert linked.read("file") == linked.read("folder/f") == b"outside"
    assert not linked.exists("dangling")
    with pytest.raises(ObjectNotFoundError, match="Too many levels"):
        linked.read("loop")


def test_changes_never_follow_links_out_of_the_root(linked: Storage, tmp_path: Path) -> None:
    for change, key in (
        *((linked.write, "folder/f"), (linked.write, "folder/new/f")),
        *((linked.write_if_absent, "folder/g"), (lambda key, _: linked.delete([key]), "folder/f")),
    ):
        with pytest.raises(StorageError, match="leads out of"):
            change(key, b"x")
    with pytest.raises(DelvecError):
        linked.write("loop/f", b"x")
    linked.write("file", b"inside now")
    linked.delete(["folder"])
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["f"]
    assert (tmp_path / "outside/f").read_bytes() == b"outside"


def test_a_root_may_be_a_link_and_links_inside_it_are_names_of_folders(linked: Storage) -> None:
    alias = Path(linked.root).with_name("alias")
    alias.symlink_to(linked.root)
    linked = Storage.open(alias)
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


def test_a_listing_survives_deletions_under_way(storage: Storage) -> None:
    for name in "abc":
        storage.write(f"d/{name}", b"x")
    listing = storage.list("d")
    assert next(listing).key == "d/a"
    storage.delete(["d/b", "d/c"])
    assert list(listing) == []


# Requests


def test_requests_are_counted(storage: Storage) -> None:
    storage.write("a", b"12345")
    before = storage.requests
    storage.write_if_absent("b/c", b"1")
    storage.read("a")
    storage.read_ranges("a", [(1, 2), (4, 1)])
    storage.size("a")
    assert keys(storage) != keys(storage, recursive=True)
    storage.delete(["a", "b/c"])
    assert storage.requests - before == RequestCounts(
        gets=2, heads=1, puts=1, lists=3, deletes=2, bytes_read=8, bytes_written=1
    )
    assert before == RequestCounts(puts=1, bytes_written=5)


# Races and crashes


def test_bytes_are_durable_before_the_name(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        there = Path(storage.root, "d", "f").exists()
        synced.append(f"{'folder' if stat.S_ISDIR(os.fstat(file).st_mode) else 'file'} {there}")
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    for change in (storage.write_if_absent, storage.write):
        synced.clear()
        change("d/f", b"x")
        assert synced[-1] == "folder True"
        assert f"file {change == storage.write}" in synced


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
    assert files_of(Path(storage.root)) == names


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
        seen = len(files_of(Path(storage.root)))
        while len(files_of(Path(storage.root))) < seen + 3 and time.monotonic() < deadline:
            time.sleep(0.003)
        process.send_signal(signal.SIGKILL)
        with process:
            assert process.wait() == -signal.SIGKILL
    visible = [name for name in files_of(Path(storage.root)) if not name.startswith(".")]
    assert len(visible) >= 6
    for name in visible:
        data = storage.read(name)
        assert len(data) == size
        assert data == data[:1] * size
        if name != "latest":
            assert data[0] == int(name.partition("-")[2]) % 256
    hidden = set(files_of(Path(storage.root))) - set(visible)
    assert all(name.startswith(STAGED_PREFIX) for name in hidden)


# Options of object stores


def options(text: str, prefix: str = "") -> dict[str, str]:
    """Read `name=value; name=value`."""
    pairs = (pair.partition("=") for pair in text.split(";") if pair)
    return {prefix + name.strip(): value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("nonsense=x", InvalidArgumentError, "nonsense"),
        ("AWS_REGION=a; region=b", InvalidArgumentError, "Duplicate"),
        ("max_retries=many", InvalidArgumentError, "max_retries must be a number"),
        ("retry_timeout=soon", InvalidArgumentError, "retry_timeout must be a duration"),
        # Commits would not be safe.
        ("AWS_CONDITIONAL_PUT=disabled", UnsupportedFeatureError, "Hint"),
        ("conditional_put=dynamo:locks", UnsupportedFeatureError, "Hint"),
        ("aws_s3_locking_provider=dynamodb", UnsupportedFeatureError, "Hint"),
    ],
)
def test_wrong_options_are_refused_at_once(
    given: str, error: type[DelvecError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Storage.open("s3://lake/t", options(given))


def test_options_of_deltalake_are_understood() -> None:
    of_store = options("AWS_ACCESS_KEY_ID=k;AWS_SECRET_ACCESS_KEY=s;AWS_REGION=x")
    of_client = options("connect_timeout=5s;proxy_url=http://proxy")
    of_retries = "max_retries=3;retry_timeout=2m;backoff_config.init_backoff=500ms"
    odd = "aws_conditional_put=etag;AWS_S3_ALLOW_UNSAFE_RENAME=true;AWS_ALLOW_HTTP=true"
    given = of_store | of_client | options(f"{of_retries};backoff_config.base=1.5;{odd}")
    config, client, retry = split_options("s3a", given)
    names = {name.lower(): value for name, value in of_store.items()}
    assert config == names | {"conditional_put": "etag"}
    assert client == of_client | {"allow_http": "true"}
    assert retry == {
        "max_retries": 3,
        "retry_timeout": timedelta(minutes=2),
        "backoff": {"init_backoff": timedelta(seconds=0.5), "base": 1.5},
    }
    more = options("timeout=30s;backoff_config.max_backoff=3s;retry_timeout=10")
    Storage.open("s3://lake/t", {**given, **more, "AWS_ALLOW_HTTP": True, "max_retries": 3})


def test_conditional_puts_do_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    store = Storage.open("s3://lake/t")._backend._store  # type: ignore[union-attr]
    assert store.config["conditional_put"] == "etag"  # type: ignore[typeddict-item]


def test_local_disk_needs_no_options(storage: Storage) -> None:
    Storage.open(storage.root, {"AWS_ACCESS_KEY_ID": "k", "nonsense": "x"}).write("f", b"")


# What Hadoop has, below `fs.s3a.`, and the options that it becomes, each an option of AWS.
PROVIDER, SIMPLE = "aws.credentials.provider", "a.SimpleAWSCredentialsProvider"
ANONYMOUS = f"bucket.lake.{PROVIDER}={SIMPLE},\n software.AnonymousCredentialsProvider"
SESSION = "access.key= k ;secret.key=s;session.token=t;endpoint=;endpoint.region=eu-west-1"
OTHERS = "access.key=all;secret.key=all;bucket.lake.access.key=lake;bucket.sea.secret.key=sea"
OLD_NAME = "endpoint=https://s3-eu-west-1.amazonaws.com;endpoint.region=eu-west-2"
HOSTED = "endpoint=https://lake.oss.example.com;virtual_hosted_style_request=true"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("", ""),
        (SESSION, "access_key_id=k;secret_access_key=s;session_token=t;region=eu-west-1"),
        (OTHERS, "access_key_id=lake;secret_access_key=all"),
        ("endpoint=s3.amazonaws.com", ""),
        ("endpoint=s3.eu-west-1.amazonaws.com", "region=eu-west-1"),
        (OLD_NAME, "region=eu-west-2"),
        ("endpoint=oss.example.com", HOSTED),
        (f"{PROVIDER}=org.AnonymousAWSCredentialsProvider;access.key=k", "skip_signature=true"),
        (f"{PROVIDER}={SIMPLE}, b.AnonymousAWSCred;access.key=k", "access_key_id=k"),
        (ANONYMOUS, "skip_signature=true"),
    ],
)
def test_settings_of_s3a_are_translated(conf: str, expected: str) -> None:
    hadoop = options(conf, "fs.s3a.")
    assert options_from_hadoop("s3a://lake/t", hadoop.get) == options(expected, "aws_")


def test_a_bucket_whose_name_has_a_dot_is_in_no_name_of_a_host() -> None:
    hadoop = {"fs.s3a.endpoint": "https://oss.example.com"}
    assert options_from_hadoop("s3a://my.lake/t", hadoop.get) == {
        "aws_endpoint": "https://oss.example.com"
    }


S3A, KEY, SAS = "fs.s3a", "fs.azure.account.key", "fs.azure.sas.fixed.token"
HOST, OTHER = "acc.dfs.core.windows.net", "other.dfs.core.windows.net"
AZURE = f"abfss://c@{HOST}/t"
LOCAL = f"{S3A}.endpoint=http://127.0.0.1:9000;{S3A}.path.style.access=true"
MINIO = f"{S3A}.endpoint=minio:9000/;{S3A}.path.style.access=TRUE"
KEYFILE, A_KEY, A_TOKEN = "service.account.json.keyfile=/k.json", "account_key=a2V5", "sas_token="
PRINCIPAL = ";".join(
    f"fs.azure.account.oauth2.client.{pair}"
    for pair in (
        *(f"id.{HOST}=id", "secret=secret"),
        f"endpoint.{HOST}=https://login.example.com/tenant/oauth2/token",
    )
)
LOGIN = "azure_authority_host=https://login.example.com"
BY_TYPE = f"fs.azure.account.auth.type.{HOST}=SAS;{KEY}.{HOST}=key;{SAS}.{HOST}=s=1"


@pytest.mark.parametrize(
    ("uri", "conf", "expected"),
    [
        ("/data/t", f"{S3A}.access.key=k", ""),
        ("file:///data/t", f"{S3A}.access.key=k", ""),
        ("s3://lake/t", LOCAL, "aws_endpoint=http://127.0.0.1:9000;allow_http=true"),
        (
            *("s3a://lake/t", f"{MINIO};{S3A}.connection.ssl.enabled=false"),
            "aws_endpoint=http://minio:9000;allow_http=true",
        ),
        (
            *("s3a://lake/t", f"{S3A}.endpoint=http://[::1]:9000"),
            "aws_endpoint=http://[::1]:9000;allow_http=true",
        ),
        ("gs://lake/t", f"fs.gs.auth.{KEYFILE}", "google_service_account=/k.json"),
        ("gs://lake/t", f"google.cloud.auth.{KEYFILE}", "google_service_account=/k.json"),
        ("gs://lake/t", "fs.gs.auth.type=UNAUTHENTICATED", "google_skip_signature=true"),
        (AZURE, f"{KEY}.{HOST}=a2V5;{KEY}=general", f"azure_storage_{A_KEY}"),
        (AZURE, f"{KEY}=a2V5", f"azure_storage_{A_KEY}"),
        (AZURE, f"{KEY}.{OTHER}=key", ""),
        (AZURE, f"{SAS}.{HOST}=s=1", f"azure_storage_{A_TOKEN}s=1"),
        (AZURE, f"{SAS}.c.{HOST}=c=1;{SAS}.{HOST}=s", f"azure_storage_{A_TOKEN}c=1"),
        (
            *(AZURE, PRINCIPAL),
            f"azure_client_id=id;azure_client_secret=secret;azure_tenant_id=tenant;{LOGIN}",
        ),
        (AZURE, BY_TYPE, f"azure_storage_{A_TOKEN}s=1"),
        ("az://c/t", f"{KEY}=a2V5", f"azure_storage_{A_KEY}"),
    ],
)
def test_a_hadoop_configuration_is_translated(uri: str, conf: str, expected: str) -> None:
    hadoop = options(conf)
    assert options_from_hadoop(uri, hadoop.get) == options(expected)
    if uri.startswith(("s3", "abfss")) or "google_skip_signature" in expected:
        assert Storage.open(uri, hadoop=hadoop.get).root == uri


KEYS, ENDPOINT = {"aws_access_key_id", "aws_session_token"}, {"aws_endpoint", "allow_http"}


@pytest.mark.parametrize(
    ("explicit", "replaced"),
    [
        ("", set()),
        ("REGION=r", {"aws_region"}),
        ("AWS_ACCESS_KEY_ID=k", KEYS),
        ("skip_signature=true", KEYS),
        ("AWS_ENDPOINT_URL=https://x", ENDPOINT),
        ("aws_allow_http=false", ENDPOINT),
    ],
)
def test_explicit_options_replace_those_of_hadoop(explicit: str, replaced: set[str]) -> None:
    hadoop = dict.fromkeys([*KEYS, *ENDPOINT, "aws_region"], "h")
    kept = {name: value for name, value in hadoop.items() if name not in replaced}
    assert merge_options(hadoop, options(explicit)) == kept | options(explicit)


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
