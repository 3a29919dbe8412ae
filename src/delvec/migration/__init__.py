"""What of delta-spark and deltalake sources use, and whether it runs here as it is."""
