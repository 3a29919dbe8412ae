"""What both table formats share on Spark; imported only when a session is asked for."""

from __future__ import annotations
