"""The definition of a table, its protocol and metadata, and how it is created and altered.

All but `operations`, which commits, are pure functions from one `TableState` to the next.
"""
