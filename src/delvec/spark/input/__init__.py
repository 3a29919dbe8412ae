"""Rows and keys that callers bring, exactly or refused."""
