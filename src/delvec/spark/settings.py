"""What the user has set for Spark already, wherever that was."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGES", "listed", "setting", "take_over_submitted_packages"]

PACKAGES: Final = "spark.jars.packages"

_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHORTHANDS: Final = {"--packages": PACKAGES, "--master": "spark.master", "--jars": "spark.jars"}


def setting(builder: SparkSession.Builder, key: str) -> str:
    """Look where Spark looks, in its order: builder, submit arguments, spark-defaults.conf."""
    options: dict[str, object] = builder._options  # noqa: SLF001
    return str(options.get(key) or _submitted().get(key) or _defaults().get(key) or "")


def listed(builder: SparkSession.Builder, key: str) -> list[str]:
    """Give a setting that is a list with commas."""
    return [value.strip() for value in setting(builder, key).split(",") if value.strip()]


def take_over_submitted_packages() -> None:
    """Drop the packages from PYSPARK_SUBMIT_ARGS; there they would win over the builder's."""
    arguments, kept = _submit_arguments(), []
    while arguments:
        if len(arguments) > 1 and _parsed(arguments[0], arguments[1])[0] == PACKAGES:
            del arguments[:2]
        else:
            kept.append(arguments.pop(0))
    if _SUBMIT_ARGUMENTS in os.environ:
        os.environ[_SUBMIT_ARGUMENTS] = shlex.join(kept)


def _submit_arguments() -> list[str]:
    return shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, ""))


def _submitted() -> dict[str, str]:
    words = _submit_arguments()
    return dict(_parsed(word, after) for word, after in pairwise(words))


def _parsed(option: str, value: str) -> tuple[str, str]:
    if option == "--conf":
        key, _, content = value.partition("=")
        return key, content
    return _SHORTHANDS.get(option, option), value


def _defaults() -> dict[str, str]:
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder and "SPARK_HOME" in os.environ:
        folder = f"{os.environ['SPARK_HOME']}/conf"
    file = Path(folder or ".", "spark-defaults.conf")
    if not folder or not file.is_file():
        return {}
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [re.split(r"[\s=]+", line, maxsplit=1) for line in lines if not line.startswith("#")]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
