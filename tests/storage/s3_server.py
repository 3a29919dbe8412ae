"""An S3 server on loopback for tests: versitygw, with a folder as its backend.

The program is looked for on PATH, in `.venv/bin` and in `.cache/bin`. With DELVEC_BUILD_S3_SERVER=1
and Go at hand it is built into `.cache/bin`, which takes minutes the first time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
MISSING = (
    "no versitygw on PATH, in .venv/bin or .cache/bin; set DELVEC_BUILD_S3_SERVER=1 to build it "
    f"with Go, or run: GOBIN={REPOSITORY}/.cache/bin go install {MODULE}"
)


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

    def requests(self) -> Counter[str]:
        """Count the requests that the server has answered, by operation (`s3_GetObject`, ...)."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(word for line in lines for word in line.split() if word.startswith("s3_"))


def find_server() -> str | None:
    """Find the program, or build it where that is wanted and possible."""
    own = REPOSITORY / ".cache" / "bin"
    places = [os.environ.get("PATH", ""), str(REPOSITORY / ".venv" / "bin"), str(own)]
    found = shutil.which("versitygw", path=os.pathsep.join(places))
    go = shutil.which("go")
    if found or not go or os.environ.get("DELVEC_BUILD_S3_SERVER") != "1":
        return found
    subprocess.run([go, "install", MODULE], check=True, env={**os.environ, "GOBIN": str(own)})
    return str(own / "versitygw")


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
