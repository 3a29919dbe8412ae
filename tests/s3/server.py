"""An S3 server on loopback for tests: versitygw, with a folder as its backend.

The program is looked for on PATH and in `.cache/bin`, where `make s3-server` puts it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from delvec.storage import Storage
from tests.repository import ROOT

MISSING = "no S3 server (versitygw) on PATH or in .cache/bin; `make s3-server` builds one with Go"


@dataclass(frozen=True)
class S3Server:
    """A running server; objects are files in `folder/<bucket>`."""

    endpoint: str
    folder: Path
    log: Path
    access_key: str = "delvec-test"
    secret_key: str = "delvec-test-secret"  # noqa: S105 - it guards nothing

    @property
    def storage_options(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def hadoop_configuration(self) -> dict[str, str]:
        return {
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key,
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        }

    def create_bucket(self, name: str) -> None:
        (self.folder / name).mkdir()

    def upload(self, folder: Path, uri: str) -> Storage:
        """Copy all files of a folder to a URI."""
        storage = Storage.open(uri, self.storage_options)
        for path in folder.rglob("*"):
            if path.is_file():
                storage.write(str(path.relative_to(folder)), path.read_bytes())
        return storage

    def requests(self) -> Counter[str]:
        """Count the requests that the server has answered, by operation (`s3_GetObject`, ...)."""
        return requests_of(self.log)


def requests_of(log: Path) -> Counter[str]:
    """Count the requests of a server's log by operation."""
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(word for line in lines for word in line.split() if word.startswith("s3_"))


def find_server() -> str | None:
    """Find the program."""
    places = [os.environ.get("PATH", ""), str(ROOT / ".cache" / "bin")]
    return shutil.which("versitygw", path=os.pathsep.join(places))


@contextmanager
def running_server(program: str, folder: Path) -> Iterator[S3Server]:
    """Run a server on a free port of 127.0.0.1 and stop it at the end."""
    for name in ("buckets", "metadata"):
        (folder / name).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    server = S3Server(f"http://{address}", folder / "buckets", folder / "access.log")
    credentials = {
        "ROOT_ACCESS_KEY_ID": server.access_key,
        "ROOT_SECRET_ACCESS_KEY": server.secret_key,
    }
    command = [program, "--quiet", "--port", address, "--access-log", str(server.log)]
    # A folder for the metadata: not every file system has extended attributes.
    command += ["posix", "--sidecar", str(folder / "metadata"), str(server.folder)]
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **credentials}, stdout=output, stderr=output
        )
    try:
        _wait_until_up(process, address, folder / "output.log")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_until_up(process: subprocess.Popen[bytes], address: str, output: Path) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"versitygw did not come up on {address}: {output.read_text()}")
