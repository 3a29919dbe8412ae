"""What a store answers stays out of errors: anybody may have written it."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from delvec.errors import StorageError
from delvec.storage import Storage
from tests.storage.listener import listening

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
