"""`delvec demo`: a walk through what delvec does, every number computed."""

from __future__ import annotations

from delvec.cli.demo.demo import command

__all__ = ["command"]
