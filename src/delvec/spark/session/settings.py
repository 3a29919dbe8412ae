"""The settings that a user has made for Spark, in any of the places that Spark reads."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.session.start import started_with

PACKAGES: Final = "spark.jars.packages"

_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_FILE: Final = "--properties-file"
_OPTIONS: Final = {
    "--conf": "",
    "-c": "",
    "--packages": PACKAGES,
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--jars": "spark.jars",
    "--remote": "spark.remote",
    _FILE: _FILE,
}
# One entry of a Java properties file: key, then blanks, `=` or `:`, then the value.
_PROPERTY: Final = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)")


def setting(builder: SparkSession.Builder, key: str) -> str:
    """Return a setting, from where Spark takes it; empty if it is not set.

    In Spark's order: the builder, then the running JVM if there is one (as under spark-submit),
    else the arguments in PYSPARK_SUBMIT_ARGS, the properties file and the environment.
    """
    options: dict[str, object] = builder._options  # noqa: SLF001
    if options.get(key):
        return str(options[key])
    if jvm.is_running():
        return started_with(key)
    arguments = _submitted()
    file = arguments.get(_FILE) or _defaults_file()
    environment = {"spark.master": os.environ.get("MASTER", "")}
    return arguments.get(key) or _properties(file).get(key) or environment.get(key) or ""


def listed(builder: SparkSession.Builder, key: str) -> list[str]:
    """Return a setting that is a list separated by commas."""
    return [value.strip() for value in setting(builder, key).split(",") if value.strip()]


def spark_jars() -> Path:
    """Return the folder of the jars that every JVM of Spark has."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"


def submit_packages(packages: list[str]) -> None:
    """Set the packages in PYSPARK_SUBMIT_ARGS if it has any: these override the builder's."""
    pairs = _parsed(shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "")))
    if all(key != PACKAGES for key, _, _ in pairs):
        return
    kept = [word for key, _, words in pairs if key != PACKAGES for word in words]
    os.environ[_SUBMIT_ARGUMENTS] = shlex.join(["--packages", ",".join(packages), *kept])


@contextmanager
def privately_submitted(options: Mapping[str, object]) -> Iterator[None]:
    """Give these settings to a JVM that starts in the block, by a file that nobody else can read.

    PySpark would put them onto the command lines of four processes, which all users of a machine
    can read. The order is Spark's own: settings in PYSPARK_SUBMIT_ARGS override these, and these
    those of a properties file or of spark-defaults.conf.
    """
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    pairs = _parsed(shlex.split(before or "pyspark-shell"))
    kept = [word for key, _, words in pairs if key != _FILE for word in words]
    with TemporaryDirectory(prefix="delvec-") as folder:  # of mode 0700
        file = Path(folder, "spark.conf")
        file.touch(mode=0o600)
        own = {key: value for key, value, _ in pairs}.get(_FILE)
        if own is None:  # a file replaces the defaults otherwise
            kept.insert(0, "--load-spark-defaults")
        file.write_bytes(_content(own) + _as_properties(options).encode("ascii"))
        os.environ[_SUBMIT_ARGUMENTS] = shlex.join([_FILE, str(file), *kept])
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT_ARGUMENTS]
            else:
                os.environ[_SUBMIT_ARGUMENTS] = before


def _content(file: str | None) -> bytes:
    if file is None:
        return b""
    try:
        return Path(file).read_bytes() + b"\n\n"  # its last line may end in a backslash
    except OSError as error:
        raise InvalidArgumentError(
            f"{_SUBMIT_ARGUMENTS} names the properties file {file}: {error.strerror}",
            hint=f"mend {_FILE} there",
        ) from error


def _as_properties(options: Mapping[str, object]) -> str:
    r"""Return settings as lines of a Java properties file; a character may be escaped by its code.

    >>> print(_as_properties({"spark.a b": "x=1\n"}), end="")
    spark.a\u0020b=x\u003d1\u000a
    """
    return "".join(f"{_escaped(key)}={_escaped(str(value))}\n" for key, value in options.items())


def _escaped(text: str) -> str:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(unit) if _plain(unit) else f"\\u{unit:04x}" for unit in units)


def _plain(unit: int) -> bool:
    return unit < 128 and (chr(unit).isalnum() or chr(unit) in "._-/,")


def _submitted() -> dict[str, str]:
    pairs = _parsed(shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "")))
    # A named option, such as --packages, overrides --conf, in any order.
    pairs.sort(key=lambda pair: pair[2][0].partition("=")[0] not in ("--conf", "-c"))
    return {key: value for key, value, _ in pairs if key}


def _parsed(words: list[str]) -> list[tuple[str, str, list[str]]]:
    """Return (key, value, words) for each option; words of unknown options have no key."""
    pairs, rest = [], list(words)
    while rest:
        option, sign, value = rest[0].partition("=")
        if option not in _OPTIONS:
            pairs.append(("", "", [rest.pop(0)]))
            continue
        used = [rest.pop(0)]
        if not sign and rest:
            used.append(rest.pop(0))
            value = used[1]
        key = _OPTIONS[option]
        if not key:
            key, _, value = value.partition("=")
        pairs.append((key, value, used))
    return pairs


def _defaults_file() -> str:
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder and "SPARK_HOME" in os.environ:
        folder = f"{os.environ['SPARK_HOME']}/conf"
    return f"{folder}/spark-defaults.conf" if folder else ""


def _properties(file: str) -> dict[str, str]:
    if not file or not Path(file).is_file():
        return {}
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in re.sub(r"\\\r?\n\s*", "", text).splitlines()]
    found = [_PROPERTY.fullmatch(line) for line in lines if not line.startswith(("#", "!"))]
    return {entry[1]: entry[2] for entry in found if entry}
