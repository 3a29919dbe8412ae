"""A runner of commands that keeps standard output and standard error apart, in any click."""

from __future__ import annotations

from inspect import signature
from typing import Any

from click.testing import CliRunner

__all__ = ["separate"]


def separate() -> CliRunner:
    """Return a runner; click mixes the two before 8.2."""
    choice: dict[str, Any] = {"mix_stderr": False}
    return CliRunner(**(choice if "mix_stderr" in signature(CliRunner).parameters else {}))
