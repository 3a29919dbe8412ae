"""Delta tables on Spark: `scan` reads them, `write` changes them."""

from __future__ import annotations
