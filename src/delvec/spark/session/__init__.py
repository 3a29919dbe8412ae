"""Starting Spark with what delvec needs: settings, packages, catalogs, the data source."""
