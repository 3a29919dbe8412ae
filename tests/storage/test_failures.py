"""What a store answers stays out of errors: anybody may have written it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from delvec.errors import StorageError
from delvec.storage import Storage

TOLD = "told-by-the-store"
XML = f"<Error><Code>AccessDenied</Code><Message>{TOLD}\x1b[2J</Message></Error>"
OPERATIONS: list[Callable[[Storage], object]] = [
    lambda storage: storage.read("a"),
    lambda storage: list(storage.list()),
    lambda storage: storage.write("a", b""),
    lambda storage: storage.write_if_absent("a", b""),
]


@contextmanager
def store(status: int, body: str) -> Iterator[Storage]:
    """A store that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "aws_endpoint": f"http://127.0.0.1:{server.server_port}",
            "aws_allow_http": "true",
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "here",
        }
        yield Storage.open("s3://bucket/table", options)
        server.shutdown()


@pytest.mark.parametrize(("status", "body"), [(403, XML), (400, TOLD), (404, XML), (409, TOLD)])
def test_the_answer_of_a_store_is_not_in_an_error(status: int, body: str) -> None:
    with store(status, body) as storage:
        for operation in OPERATIONS:
            with pytest.raises(StorageError) as failure:
                operation(storage)
            assert TOLD not in "".join(traceback.format_exception(failure.value))
            if status == 403:
                assert "403 Forbidden (AccessDenied)" in str(failure.value)
                assert "credentials" in str(failure.value)


def test_a_listing_that_is_none_is_not_quoted() -> None:
    with store(200, f"<{TOLD}") as storage, pytest.raises(StorageError) as failure:
        list(storage.list())
    assert TOLD not in "".join(traceback.format_exception(failure.value))
