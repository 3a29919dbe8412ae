"""An HTTP server on loopback that answers nothing of use, and records what it was asked and how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Listener:
    """What was asked: paths with their queries, and headers of authorization."""

    port: int
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def listening() -> Iterator[Listener]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listener.asked.append((self.path, self.headers.get("Authorization")))
            self.send_error(404)

        do_HEAD = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener = Listener(server.server_port)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
