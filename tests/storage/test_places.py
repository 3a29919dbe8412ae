"""What stores are asked and told: no credentials for other places, no answers in errors."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delvec import DeltaTable
from delvec.errors import DelvecError, FormatError, InvalidArgumentError, StorageError
from delvec.storage import Storage
from delvec.storage.fence import lists_of
from delvec.storage.listed_files import local_path, open_listed_file
from tests.delta.builder import TableBuilder
from tests.s3.server import S3Server
from tests.storage.contract import copied
from tests.storage.listener import Listener, listening

OTHER = "s3://other/private.parquet"
UNNAMED = "in another place, for which no credentials were given"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def asked(storage: Storage, path: str) -> None:
    place, key = open_listed_file(storage, path)
    place.exists(key)


def test_keys_of_a_bucket_are_not_used_for_another(listener: Listener) -> None:
    storage = Storage.open("s3://lake/t", listener.options)
    with pytest.raises(FormatError, match=UNNAMED) as error:
        asked(storage, OTHER)
    assert OTHER in str(error.value)
    assert "storage_options={'s3://other': {...}}" in str(error.value)
    assert listener.asked == []
    asked(storage, "s3a://lake/elsewhere/x")
    [(path, signature)] = listener.asked
    assert path == "/lake/elsewhere/x"
    assert "Credential=mine/" in str(signature)


def test_a_token_of_an_account_is_not_sent_to_another(listener: Listener) -> None:
    options = {
        "azure_storage_sas_token": "sv=1&sig=the-signature",
        "azure_storage_endpoint": listener.endpoint,
        "allow_http": "true",
    }
    storage = Storage.open("abfss://lake@good.dfs.core.windows.net/t", options)
    for path in (
        "abfss://lake@attacker.dfs.core.windows.net/x",
        "abfs://lake@attacker.blob.core.windows.net/x",
        "abfss://private@good.dfs.core.windows.net/x",
        "abfss://lake@good.dfs.core.windows.net.evil.example/x",
    ):
        with pytest.raises(FormatError, match=UNNAMED):
            asked(storage, path)
    assert listener.asked == []
    asked(storage, "abfs://lake@good.dfs.core.windows.net/x")
    [(path, _)] = listener.asked
    assert "sig=the-signature" in path


def test_keys_of_the_environment_are_used_for_the_tables_own_bucket_alone(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in listener.options.items():
        monkeypatch.setenv(name.upper() if name.startswith("aws") else f"AWS_{name.upper()}", value)
    storage = Storage.open("s3://lake/t")
    with pytest.raises(FormatError, match=UNNAMED):
        asked(storage, OTHER)
    assert listener.asked == []
    # By name and without keys of its own another place gets what the environment has.
    asked(Storage.open("s3://lake/t", {"s3://other": {}}), OTHER)
    [(path, signature)] = listener.asked
    assert path == "/other/private.parquet"
    assert "Credential=mine/" in str(signature)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_place_is_named_by_options_of_its_own(listener: Listener, scheme: str) -> None:
    theirs = listener.options | {"aws_access_key_id": "theirs"}
    nested = {**listener.options, f"{scheme}://other": theirs}
    flat = {**listener.options, **{f"{scheme}://other/{key}": theirs[key] for key in theirs}}
    for options in (nested, flat):
        storage = Storage.open("s3://lake/t", options)
        for copy in (storage, copied(storage)):
            listener.asked.clear()
            asked(copy, OTHER)
            [(path, signature)] = listener.asked
            assert path == "/other/private.parquet"
            assert "Credential=theirs/" in str(signature)
    assert "theirs" not in repr(storage)


def test_options_of_a_place_that_name_none_are_refused() -> None:
    region = {"aws_region": "eu-west-1"}
    for wrong in ({"s3://other": "eu-west-1"}, {"s3://other/aws_region": region}):
        with pytest.raises(InvalidArgumentError, match="names a place, and no option"):
            Storage.open("s3://lake/t", wrong)


def test_settings_of_hadoop_name_places_as_they_do_for_spark(listener: Listener) -> None:
    conf = {
        "fs.s3a.access.key": "all",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": listener.endpoint,
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.bucket.other.access.key": "theirs",
    }
    storage = Storage.open("s3a://lake/t", listener.options, hadoop=conf.get)
    asked(storage, OTHER)
    asked(storage, "s3a://third/x")
    # What tasks get has no configuration to ask, and knows what was asked for before.
    asked(copied(storage), OTHER)
    told = [("/other/private.parquet", "theirs"), ("/third/x", "all")]
    for (path, signature), (place, user) in zip(listener.asked, [*told, told[0]], strict=True):
        assert path == place
        assert f"Credential={user}/" in str(signature)


def test_endpoints_that_hold_a_buckets_name_are_not_asked_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {
        "aws_endpoint": "https://lake.store.example",
        "aws_virtual_hosted_style_request": "true",
        "aws_region": "x",
    }
    with pytest.raises(FormatError, match=UNNAMED):
        Storage.open("s3://lake/t", own).open_elsewhere(OTHER)
    with pytest.raises(FormatError, match=r"not one of that bucket: expected other\.<host>"):
        Storage.open("s3://lake/t", {"s3://other": own}).open_elsewhere(OTHER)
    conf = {"fs.s3a.endpoint": "store.example"}
    storage = Storage.open("s3a://lake/t", hadoop=conf.get)
    place, _ = storage.open_elsewhere("s3a://other/x")
    assert storage.options["aws_endpoint"] == "https://lake.store.example"
    assert place.options["aws_endpoint"] == "https://other.store.example"
    for name in ("aws_endpoint", "aws_virtual_hosted_style_request"):
        monkeypatch.setenv(name.upper().replace("ENDPOINT", "ENDPOINT_URL"), own[name])
    with pytest.raises(FormatError, match="not one of that bucket"):
        Storage.open("s3://lake/t", {"s3://other": {}}).open_elsewhere(OTHER)


def test_keys_for_all_accounts_of_azure_go_to_the_tables_account_alone() -> None:
    general = {"fs.azure.sas.fixed.token": "sv=1&sig=x"}
    table = "abfss://c@good.dfs.core.windows.net/t"
    attacker = "abfss://c@attacker.dfs.core.windows.net/x"
    storage = Storage.open(table, hadoop=general.get)
    with pytest.raises(FormatError, match=UNNAMED):
        storage.open_elsewhere(attacker)
    place, _ = storage.open_elsewhere("abfss://second@good.dfs.core.windows.net/x")
    assert place.options == {"azure_storage_sas_token": "sv=1&sig=x"}
    scoped = {**general, "fs.azure.account.key.attacker.dfs.core.windows.net": "a2V5"}
    place, _ = Storage.open(table, hadoop=scoped.get).open_elsewhere(attacker)
    assert place.options == {"azure_storage_account_key": "a2V5"}


def test_a_bucket_of_google_is_named_by_settings_of_hadoop() -> None:
    own = {"google_skip_signature": "true"}
    with pytest.raises(FormatError, match=UNNAMED):
        Storage.open("gs://lake/t", own).admit("gs://other/x")
    conf = {"fs.gs.auth.type": "COMPUTE_ENGINE"}
    Storage.open("gs://lake/t", own, hadoop=conf.get).admit("gs://other/x")


def five_rows(s3: S3Server, root: Path, path: str, bucket: str) -> dict[str, Any]:
    """Put a table of one file that the log knows by a path, and that file into another bucket."""
    if not (s3.folder / bucket).exists():
        s3.create_bucket(bucket)
    builder = TableBuilder(root)
    builder.create()
    add = builder.write_file("private.parquet", {"id": range(5)})
    builder.commit({"add": add | {"path": path}})
    s3.upload(root, "s3://lake/source")
    s3.upload(root, f"s3://{bucket}")
    return dict(s3.storage_options)


@pytest.mark.s3
def test_a_table_whose_file_is_in_another_bucket(s3: S3Server, tmp_path: Path) -> None:
    options = five_rows(s3, tmp_path / "t", OTHER, "other")
    before = s3.log.read_text().count("/other/")
    table = DeltaTable.for_path(None, "s3://lake/source", options)
    for refused in (table.to_arrow, lambda: table.clone("s3://lake/clone")):
        with pytest.raises(DelvecError, match=UNNAMED):
            refused()
    assert "other-store" in {each.kind for each in table.check().findings}
    assert s3.log.read_text().count("/other/") == before, "the other bucket was asked"
    named = DeltaTable.for_path(None, "s3://lake/source", {**options, "s3://other": options})
    assert named.to_arrow().num_rows == 5
    assert s3.log.read_text().count("/other/") > before


@pytest.mark.s3
def test_a_clone_elsewhere_names_the_bucket_of_its_source(s3: S3Server, tmp_path: Path) -> None:
    options = five_rows(s3, tmp_path / "t", "private.parquet", "clones")
    DeltaTable.for_path(None, "s3://lake/source", options).clone("s3://clones/c")
    with pytest.raises(FormatError, match=UNNAMED):
        DeltaTable.for_path(None, "s3://clones/c", options).to_arrow()
    clone = DeltaTable.for_path(None, "s3://clones/c", {**options, "s3://lake": options})
    assert clone.to_arrow().num_rows == 5


def test_the_options_of_a_table_are_not_taken_for_a_clone_behind_another_endpoint(
    tmp_path: Path,
) -> None:
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    own = {"aws_endpoint": "https://lake.x", "aws_virtual_hosted_style_request": "true"}
    table = DeltaTable(Storage.open("s3://lake/t", {**own, "aws_region": "x"}))
    with pytest.raises(DelvecError, match=r"expected other\.<host>"):
        table.clone("s3://other/clone")


def test_all_spellings_of_a_local_file_are_one_path_and_other_hosts_and_stores_are_not() -> None:
    spellings = ["/a b%20", *(f"file:{'/' * count}a b%20" for count in (1, 3, 4))]
    assert [local_path(each) for each in spellings] == ["/a b%20"] * 4
    assert local_path("file://localhost/lake") == "/lake"
    assert local_path("s3a://bucket/file:/x") == "s3a://bucket/file:/x"
    with pytest.raises(FormatError, match="on another host"):
        local_path("file://elsewhere/lake")


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
def test_a_link_that_is_swapped_meanwhile_is_refused(
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


TOLD = "told-by-the-store"
XML = f"<Error><Code>AccessDenied</Code><Message>{TOLD}\x1b[2J</Message></Error>"
Operation = Callable[[Storage], object]
OPERATIONS: list[Operation] = [
    lambda storage: storage.read("a"),
    lambda storage: list(storage.list()),
    lambda storage: storage.write("a", b""),
    lambda storage: storage.write_if_absent("a", b""),
]


@pytest.mark.parametrize(("status", "body"), [(403, XML), (400, TOLD), (404, XML), (409, TOLD)])
def test_the_answer_of_a_store_is_not_in_an_error(status: int, body: str) -> None:
    with listening(status, body) as found:
        storage = Storage.open("s3://bucket/table", found.options)
        for operation in OPERATIONS:
            with pytest.raises(StorageError) as failure:
                operation(storage)
            assert TOLD not in "".join(traceback.format_exception(failure.value))
            if status == 403:
                assert "403 Forbidden (AccessDenied)" in str(failure.value)
                assert "credentials" in str(failure.value)


def test_a_listing_that_is_none_is_not_quoted() -> None:
    with listening(200, f"<{TOLD}") as found, pytest.raises(StorageError) as failure:
        list(Storage.open("s3://bucket/table", found.options).list())
    assert TOLD not in "".join(traceback.format_exception(failure.value))
