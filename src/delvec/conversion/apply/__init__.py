"""Carrying out a plan: write vectors, stage snapshots, verify and publish them."""

from __future__ import annotations
