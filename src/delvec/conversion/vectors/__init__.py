"""Deletion vectors of the source in the target: repacked, referenced or as position deletes.

Also by what a later conversion recognises the vectors that a target has.
"""

from __future__ import annotations
