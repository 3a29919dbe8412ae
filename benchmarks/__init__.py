"""Benchmarks: delvec against its peers, in the same run, interleaved, as a ratio."""

from __future__ import annotations
