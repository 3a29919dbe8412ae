"""Files of a local table that have another name, since a folder or the file itself is a link.

A listing does not follow links: it shows a file by the name that it really has, while the log may
refer to it by that of a link. Costs a look at each distinct folder, not at each file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.storage.listed_files import folder_key, linked_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["linked_keys", "with_linked_keys"]


def with_linked_keys(keys: pa.Array, root: str) -> pa.Array:
    """Return keys, and after them the real keys of files that have another one behind links."""
    _, targets = linked_keys(keys, root)
    return pa.concat_arrays([keys, targets]) if len(targets) else keys


def linked_keys(keys: pa.Array, root: str) -> tuple[NDArray[np.int64], pa.Array]:
    """Return which files are behind links that end inside the table, and their real keys.

    Args:
        keys: Keys below the table.
        root: The table; in an object store there are no links.
    """
    numbers: list[int] = []
    targets: list[str] = []
    if "://" not in root and len(keys):
        has_folder = pc.match_substring(keys, "/")
        folders = pc.if_else(has_folder, pc.replace_substring_regex(keys, "/[^/]*$", ""), "")
        encoded = folders.dictionary_encode()
        linked = {
            number: found
            for number, folder in enumerate(encoded.dictionary.to_pylist())
            if (found := _linked(root, folder)) is not None
        }
        places = encoded.indices.to_numpy()
        rows: list[int] = np.flatnonzero(np.isin(places, list(linked))).tolist() if linked else []
        for row in rows:
            key, (real, links) = keys[row].as_py(), linked[int(places[row])]
            name = key.rpartition("/")[2]
            target = links.get(name, None if real is None else f"{real}/{name}".lstrip("/"))
            if target and target != key:
                numbers.append(row)
                targets.append(target)
    return np.array(numbers, dtype=np.int64), pa.array(targets, pa.string())


def _linked(root: str, folder: str) -> tuple[str | None, dict[str, str | None]] | None:
    """Return the real key of a folder, and the links in it; None if it is an ordinary one."""
    found = folder_key(root, f"{root}/{folder}"), linked_files(root, folder)
    return None if found == (folder, {}) else found
