"""Figures and names in the texts that people read."""

from __future__ import annotations

__all__ = ["binary_size", "counted", "visible"]


def binary_size(count: float) -> str:
    """Give bytes in the unit that fits.

    >>> binary_size(44), binary_size(1536), binary_size(5 << 40)
    ('44 B', '1.5 KiB', '5.0 TiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """Give a number with its noun.

    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def visible(value: object) -> str:
    r"""Show a value on one line: names in tables and files may hold control characters.

    >>> print(visible("a\nb"))
    a\nb
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
