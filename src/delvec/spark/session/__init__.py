"""Starting Spark with what delvec needs: settings, packages, catalogs, the data source."""

from __future__ import annotations
