"""Rows of a snapshot without a session: scans, deletion vectors and the change data feed."""
