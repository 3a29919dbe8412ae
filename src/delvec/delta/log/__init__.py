"""The transaction log: its files, the actions in them, and the snapshots they replay to."""
