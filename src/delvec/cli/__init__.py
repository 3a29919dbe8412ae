"""The command `delvec`."""

from __future__ import annotations

from delvec.cli.main import main

__all__ = ["main"]
