from __future__ import annotations

import pytest

from delvec.errors import FormatError
from delvec.storage.listed_files import local_path


@pytest.mark.parametrize(
    "location", ["/a b%20", "file:/a b%20", "file:///a b%20", "file:////a b%20"]
)
def test_all_spellings_of_a_local_file_are_one_path(location: str) -> None:
    assert local_path(location) == "/a b%20"


def test_files_of_this_host_and_of_stores_are_told_from_those_of_other_hosts() -> None:
    assert local_path("file://localhost/lake") == "/lake"
    assert local_path("s3a://bucket/file:/x") == "s3a://bucket/file:/x"
    with pytest.raises(FormatError, match="on another host"):
        local_path("file://elsewhere/lake")
