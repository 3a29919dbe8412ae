"""A real browser for tests: Debian's chromium without a window, over its DevTools protocol.

The client is some lines on a socket: WebSocket frames as RFC 6455 has them, no further package.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_SECONDS: Final = 120.0  # for one answer, on a machine that is busy with other tests
# A profile of its own, and nothing that calls home: requests that are seen are those of the page.
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # root may not have one
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def browser_path() -> str:
    """Return the browser; without one a test is skipped."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no chromium: scripts/install_chromium.sh")
    return found


class _Socket:
    """A WebSocket that sends and receives texts."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._socket = socket.create_connection((parts.hostname, parts.port), _SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        self._stream = self._socket.makefile("rb")
        status = self._stream.readline()
        assert b"101" in status, status
        while self._stream.readline().strip():
            pass

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, text: str) -> None:
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        head = bytes([0x81])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        self._socket.sendall(head + mask + masked)

    def receive(self) -> str:
        """Return the next text; frames of other kinds are skipped."""
        whole = b""
        while True:
            first, second = self._read(2)
            size = second & 0x7F
            if size == 126:
                [size] = struct.unpack(">H", self._read(2))
            elif size == 127:
                [size] = struct.unpack(">Q", self._read(8))
            data = self._read(size)
            if first & 0x0F in (0, 1):
                whole += data
                if first & 0x80:
                    return whole.decode()

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        assert data is not None
        assert len(data) == size, "the browser closed the connection"
        return data


@dataclass
class Browser:
    """One page of a browser, and what happened on it."""

    socket: _Socket
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _sent: int = 0

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Run a method of the protocol and return its result; events are kept."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.receive())
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def wait_for(self, method: str) -> None:
        """Return when an event has come, since `events` was emptied."""
        while not self.named(method):
            self.events.append(json.loads(self.socket.receive()))

    def named(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of events."""
        return [each["params"] for each in self.events if each.get("method") in methods]

    def open(self, url: str, *, width: int, dark: bool = False, mobile: bool = False) -> None:
        """Show a page, and return when all of it is there."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401
        """Return the value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        found = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(found["data"])


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile, and end it after the block."""
    command = [browser_path(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            browser = Browser(_Socket(_address(process)))
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
            browser.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            yield browser
            browser.socket.close()
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes]) -> str:
    """Return where the browser listens, which it says on its standard error."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line.decode(errors="replace"))
        if b"DevTools listening on " in line:
            return said[-1].rpartition(" ")[2].strip()
    raise AssertionError("the browser did not start:\n" + "".join(said))
