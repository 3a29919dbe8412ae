"""The settings that a user has made for Spark, in any of the places that Spark reads."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGES", "listed", "setting", "spark_jars", "submit_packages"]

PACKAGES: Final = "spark.jars.packages"

_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_OPTIONS: Final = {
    "--conf": "",
    "-c": "",
    "--packages": PACKAGES,
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--jars": "spark.jars",
    "--remote": "spark.remote",
    "--properties-file": "--properties-file",
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
        return jvm.started_with(key)
    arguments = _submitted()
    file = arguments.get("--properties-file") or _defaults_file()
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
