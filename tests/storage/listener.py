"""A store on loopback that gives one answer to everything, and records what it was asked."""

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

    @property
    def options(self) -> dict[str, str]:
        """Return the options of a bucket there."""
        return {
            "aws_access_key_id": "mine",
            "aws_secret_access_key": "secret",
            "aws_region": "eu-west-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }


@contextmanager
def listening(status: int = 404, body: str = "") -> Iterator[Listener]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listener.asked.append((self.path, self.headers.get("Authorization")))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        listener = Listener(server.server_port)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield listener
        server.shutdown()
