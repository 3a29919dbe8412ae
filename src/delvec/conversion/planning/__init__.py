"""Comparing a version of the source with the files of the target: only metadata is read."""

from __future__ import annotations
