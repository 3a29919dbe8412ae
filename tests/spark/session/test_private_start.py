"""What other users of the machine, and of its network, see and reach of a session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from delvec.errors import InvalidArgumentError
from delvec.spark.session.settings import privately_submitted
from tests.spark.session.test_session import environment

SECRET = "s3cr3t of a store"  # noqa: S105 - the point of it

START = """
import os, socket, threading
import delvec
from delvec.spark import jvm

spark = delvec.session(
    "w", iceberg=False, master="local[2]",
    conf={"spark.hadoop.fs.s3a.secret.key": %r, "spark.driver.memory": "600m", "spark.b": "ours"},
)
get = spark.conf.get
assert jvm.hadoop_setting(spark)("fs.s3a.secret.key") == %r
assert [get("spark." + key) for key in "abc"] == ["a", "ours", "c"], "of the user's own places"
assert spark.sparkContext.uiWebUrl is None
runtime = jvm.java_class(spark, "java.lang.Runtime").getRuntime()
assert 500 < runtime.maxMemory() >> 20 <= 600
print("up", jvm.java_class(spark, "java.lang.ProcessHandle").current().pid(), flush=True)
input()

table = delvec.DeltaTable.create(spark, "t", "id BIGINT")
table.append(spark.range(1, 3))
assert table.to_df().where("id > 1").count() == 1
gateway = spark.sparkContext._gateway
[proxy, *_] = [name for name in gateway.gateway_property.pool.dict if name.startswith("p")]
port = gateway._callback_server.port
for greeting in ("", "A\\nnone\\n"):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        stranger.sendall(f"{greeting}c\\n{proxy}\\ntoString\\ne\\n".encode())
        try:
            answer = stranger.recv(100)
        except ConnectionResetError:
            answer = b""
        assert b"y" not in answer, answer  # as answers to calls begin
found = []
thread = threading.Thread(target=lambda: found.append(table.to_df().count()))
thread.start()
thread.join()
assert found == [2]
batches = []
rows = spark.readStream.format("rate").load().writeStream
stream = rows.foreachBatch(lambda rows, number: batches.append(number)).start()
while stream.isActive and not batches:
    stream.awaitTermination(0.2)
stream.stop()
assert stream.exception() is None and batches
"""


def command_lines() -> Iterator[bytes]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes()
        except OSError:  # noqa: PERF203 - it has ended
            continue


def listening(process: int) -> set[str]:
    """The addresses that a process listens on, as the kernel writes them."""
    links = [str(fd.readlink()) for fd in Path(f"/proc/{process}/fd").iterdir() if fd.is_symlink()]
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]
    ]
    own = [line for line in lines if f"socket:[{line[9]}]" in links]
    return {line[1].partition(":")[0] for line in own if line[3] == "0A"}


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_session_shows_no_secret_and_listens_to_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a a\nspark.b b\nspark.c no\n")
    place = environment() | {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.c=c pyspark-shell",
        "TMPDIR": str(tmp_path),
    }
    script = tmp_path / "start.py"  # not -c, which is a command line
    script.write_text(START % (SECRET, SECRET))
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=place,
    ) as process:
        output = process.stdout
        assert output is not None
        lines: list[str] = []
        reader = Thread(target=lambda: lines.append(output.readline()))
        reader.start()
        seen, submits = set(), 0
        while reader.is_alive():
            for line in command_lines():
                submits += b"--properties-file" in line
                if SECRET.encode() in line:
                    seen.add(line[:300])
            reader.join(0.02)
        assert lines[0].startswith("up "), process.communicate()[1][-3000:]
        assert seen == set()
        assert submits
        assert listening(int(lines[0].split()[1])) == {"0000000000000000FFFF00000100007F"}
        assert list(tmp_path.glob("delvec-*")) == []  # the file is gone
        _, errors = process.communicate("\n")
    assert process.returncode == 0, errors[-3000:]


def test_the_file_of_settings_is_private_and_holds_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.a 1\nspark.b 1\\")
    arguments = f"--properties-file {mine} --name 'a b' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    with privately_submitted({"spark.b": "ä=\n2", "spark.c": SECRET}):
        given = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        file = Path(given[1])
        text = file.read_text()
        modes = [oct(path.stat().st_mode & 0o777) for path in (file, file.parent)]
    assert modes == ["0o600", "0o700"]
    assert given[2:] == ["--name", "'a", "b'", "pyspark-shell"]
    assert text.splitlines() == [
        "spark.a 1",
        "spark.b 1\\",
        "",
        "spark.b=\\u00e4\\u003d\\u000a2",
        "spark.c=s3cr3t\\u0020of\\u0020a\\u0020store",
    ]
    assert not file.parent.exists()
    mine.unlink()
    with pytest.raises(InvalidArgumentError, match="names the properties file"):  # noqa: SIM117
        with privately_submitted({}):
            pass
