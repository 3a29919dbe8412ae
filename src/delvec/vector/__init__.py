"""Deletion vectors, encoded and decoded in every form that Delta and Iceberg have; no I/O.

A deletion vector is a set of row positions of one data file. In memory it is a `Bitmap`; its
encoding is a frame (`frame`). It is stored in one of three places: a Delta file (`delta_file`,
located by a `Descriptor`), a Delta log entry (an inline descriptor), or a Puffin file of Iceberg
(`puffin`, `blobs`).

>>> deleted = Bitmap([3, 4, 7, 11, 18, 29])
>>> [file] = pack([deleted])
>>> file.descriptors[0].decode(file.data[1:]) == deleted
True
>>> blob = DeletionVector(deleted, "s3://lake/orders/part-0.parquet").to_blob()
>>> blob.data == file.data[1:]  # Delta and Iceberg hold the same bytes
True

This package imports neither Spark nor anything that does I/O.
"""

from __future__ import annotations

from delvec.vector.bitmap import Bitmap
from delvec.vector.blobs import DeletionVector, EqualityDeleteVector
from delvec.vector.delta_file import VectorFile, pack
from delvec.vector.descriptor import Descriptor
from delvec.vector.frame import decode_frame, encode_frame
from delvec.vector.frame_batch import Frames, copy_frames

__all__ = [
    "Bitmap",
    "DeletionVector",
    "Descriptor",
    "EqualityDeleteVector",
    "Frames",
    "VectorFile",
    "copy_frames",
    "decode_frame",
    "encode_frame",
    "pack",
]
