"""The version, in a module of its own so that the build can read it without an import."""

from __future__ import annotations

__version__ = "0.1.0"
