"""Iceberg's own REST catalog on loopback, for tests; it fails on demand."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyspark

from tests.repository import ROOT
from tests.spark.jars import resolved_jars

_HERE = Path(__file__).parent
_JARS = ROOT / ".cache" / "rest-server"
_SPARK_JARS = Path(pyspark.__file__).parent / "jars" / "*"
_IVY = ["java", "-cp", str(_SPARK_JARS), "org.apache.ivy.Main", "-warn"]


@dataclass(frozen=True)
class RestServer:
    """A running server."""

    uri: str
    _input: IO[str]
    _output: IO[str]

    def fail(self, *commits: str) -> None:
        """Say what becomes of the next commits to tables: `done`, `lost` or `never` of each."""
        line = " ".join(commits or ["done"])
        self._input.write(line + "\n")
        self._input.flush()
        assert self._output.readline() == line + "\n"


@contextmanager
def running_server(folder: Path) -> Iterator[RestServer]:
    """Run a server on a folder of its own during the block."""
    sqlite = next(jar for jar in resolved_jars() if "sqlite" in jar)
    path = f"{_resolved()}/*:{sqlite}:{_SPARK_JARS}"
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(
            ["java", "-cp", path, str(_HERE / "RestServer.java"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, (folder / "server.log").read_text()
        yield RestServer(f"http://127.0.0.1:{port}", process.stdin, process.stdout)
        process.stdin.close()


def _resolved() -> Path:
    """Return the folder of the server's jars, which Spark's own Ivy downloads once."""
    _JARS.parent.mkdir(exist_ok=True)
    done = _JARS / "done"
    with _JARS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            pattern = f"{_JARS}/[artifact]-[revision](-[classifier]).[ext]"
            command = [*_IVY, "-ivy", str(_HERE / "rest-server.xml"), "-retrieve", pattern]
            subprocess.run(command, check=True, capture_output=True)
            done.touch()
    return _JARS
