"""The inspection of a Delta table: its figures, from the log and a listing of its folder."""

from __future__ import annotations
