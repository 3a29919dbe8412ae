"""The style sheet of the page, and what a content security policy takes for it."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

__all__ = ["style", "style_hash"]


@cache
def style() -> str:
    """Return the style sheet; from a zip archive as well."""
    return files("delvec.inspection").joinpath("page.css").read_text(encoding="utf-8")


def style_hash() -> str:
    """Return the hash by which a policy allows this sheet and no other."""
    return "sha256-" + b64encode(sha256(style().encode()).digest()).decode()
