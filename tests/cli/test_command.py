from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from delvec import errors
from delvec._version import __version__
from delvec.cli.exits import ExitCode, exit_code
from delvec.vector import Bitmap, DeletionVector, EqualityDeleteVector, pack, puffin
from delvec.vector.puffin import Blob
from tests.cli.runner import run


def test_the_installed_command_tells_its_version_and_help_has_a_short_option() -> None:
    command = [str(Path(sys.executable).parent / "delvec"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"delvec {__version__}\n"
    assert run("-h").output == run("--help").output


@pytest.fixture
def delta_file(tmp_path: Path) -> Path:
    [file] = pack([Bitmap([0, 9]), Bitmap(range(1000))])
    path = tmp_path / "dv.bin"
    path.write_bytes(file.data)
    return path


def test_inspect_names_the_vector_that_is_damaged_and_shows_the_others(delta_file: Path) -> None:
    data = bytearray(delta_file.read_bytes())
    data[20] ^= 1
    delta_file.write_bytes(data)
    result = run("inspect", delta_file, code=ExitCode.DAMAGED)
    assert "checksum of the vector does not match at byte 1" in result.output
    assert "1,000 values; 1 damaged" in result.output
    result = run("inspect", "--json", delta_file, code=ExitCode.DAMAGED)
    assert json.loads(result.output)["damaged"] == 1


def test_inspect_shows_a_puffin_file_with_all_kinds_of_blobs(tmp_path: Path) -> None:
    vector = DeletionVector(Bitmap([5]), "s3://lake/\x1b[2J:x:[odd]\nname.parquet").to_blob()
    sketch = Blob("apache-datasketches-theta-v1", b"sketch")
    blobs = [vector, EqualityDeleteVector(Bitmap([100, 500]), 3).to_blob(), sketch]
    path = tmp_path / "x.puffin"
    path.write_bytes(puffin.encode(blobs).data)
    output = run("inspect", path, code=0).output
    odd = "s3://lake/\\x1b[2J:x:[odd]\\nname.parquet"  # it cannot speak to the terminal
    assert [text for text in (odd, "field 3", sketch.type) if text not in output] == []
    wrong = vector.data[:-1] + bytes([vector.data[-1] ^ 1])
    broken = Blob(vector.type, wrong, vector.fields, vector.properties)
    path.write_bytes(puffin.encode([broken]).data)
    run("inspect", path, code=ExitCode.DAMAGED)


def test_errors_become_messages_and_exit_codes(tmp_path: Path) -> None:
    missing = run("inspect", tmp_path / "nothing.bin", code=ExitCode.NOT_FOUND)
    assert "nothing.bin does not exist" in missing.output.partition("Error:")[2]
    for name in (tmp_path, f"{tmp_path}/"):
        result = run("inspect", name, code=ExitCode.NOT_FOUND)
        assert "is not a Delta table: there is no such folder, or it is empty" in result.output
    (tmp_path / "text.bin").write_bytes(b"hello")
    wrong = run("inspect", "--json", tmp_path / "text.bin", code=ExitCode.DAMAGED)
    error = json.loads(wrong.output)["error"]
    assert (error["type"], error["found"]) == ("FormatError", "68 65 6c 6c")
    assert error["path"].endswith("text.bin")
    result = run("inspect", "ftp://host/file.bin", code=ExitCode.UNSUPPORTED)
    assert "Hint: use a path, or a URI with file, s3" in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found an empty file"),
        (b"PAR1" + bytes(100), "found a Parquet file"),
        (b"PFA1", "too short for a Puffin file in {path} at byte 0"),
        (b"\x01\0\0\0", "file ends inside a vector in {path} at byte 1"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    result = run("inspect", path, code=ExitCode.DAMAGED)
    assert message.format(path=path) in result.output.replace("\n", " ")


def test_a_large_file_of_another_kind_stays_unread(tmp_path: Path) -> None:
    for head in (b"PAR1", b"\x01"):
        with (tmp_path / "large.bin").open("wb") as file:
            file.write(head)
            file.truncate(1 << 40)
        run("inspect", tmp_path / "large.bin", code=ExitCode.DAMAGED)


@pytest.mark.parametrize(
    "name",
    ["[red].bin", "[id=7].bin", "a:x:b.bin", "sp ace.bin", "100%20.bin", "é.bin", "a\x1b[1m"],
)
def test_odd_names_are_shown_as_they_are(delta_file: Path, name: str) -> None:
    path = delta_file.with_name(name)
    path.write_bytes(delta_file.read_bytes())
    result = run("inspect", path, code=0)
    shown = name.replace("\x1b", "\\x1b")
    assert f"{shown}: Delta deletion vector file" in result.output
    assert "\x1b" not in result.output
    uri = path.as_uri()
    assert json.loads(run("inspect", "--json", uri).output)["bytes"] == 84


def test_exit_codes_mean_something() -> None:
    codes = {
        errors.DelvecError: 1,
        errors.PlanError: 1,
        errors.ObjectNotFoundError: 3,
        errors.TableNotFoundError: 3,
        errors.ChecksumError: 4,
        errors.ConflictError: 6,
        errors.UnsupportedFeatureError: 5,
        errors.VerificationError: 7,
    }
    assert {kind: exit_code(kind("x")) for kind in codes} == codes
