"""Which location is a table's own, by where the catalog says that its metadata file is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from delvec.errors import PlanError
from delvec.iceberg.client import own_location
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.own_location import require_own_location


def table(location: str, file: str | None) -> LoadedTable:
    metadata = SimpleNamespace(location=location, file=file)
    return cast("LoadedTable", SimpleNamespace(name="lake.db.t", metadata=metadata))


@pytest.fixture(autouse=True)
def _on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_location, "default_store", lambda _: "file:///")


# Without a file the catalog is trusted: some of REST do not tell it.
@pytest.mark.parametrize("file", ["metadata/v1.metadata.json", "other/v1.metadata.json", None])
def test_the_metadata_file_is_right_in_the_location(tmp_path: Path, file: str | None) -> None:
    location = f"{tmp_path}/t"
    found = None if file is None else f"file:{location}/{file}"
    assert require_own_location(table(location, found)) == location


@pytest.mark.parametrize("folder", ["t", "t/deep/metadata", "u/metadata"])
def test_a_location_without_metadata_may_be_that_of_others(tmp_path: Path, folder: str) -> None:
    with pytest.raises(PlanError, match="may be that of others"):
        require_own_location(table(f"{tmp_path}/t", f"{tmp_path}/{folder}/v1.metadata.json"))
