"""The names that delta-spark's `delta.exceptions` has for conflicts of writers.

delvec has one error for them: `ConflictError`, which says what the other commit did.
"""

from __future__ import annotations

from delvec.errors import ConflictError

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]

DeltaConcurrentModificationException = ConflictError
ConcurrentWriteException = ConflictError
MetadataChangedException = ConflictError
ProtocolChangedException = ConflictError
ConcurrentAppendException = ConflictError
ConcurrentDeleteReadException = ConflictError
ConcurrentDeleteDeleteException = ConflictError
ConcurrentTransactionException = ConflictError
