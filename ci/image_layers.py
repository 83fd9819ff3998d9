# SPDX-License-Identifier: Apache-2.0
"""Counts bytes of an image that no container sees: written in one layer, replaced or removed later.

Reads the layers where overlay2 keeps them, which takes root.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPAQUE = "trusted.overlay.opaque"  # on a folder that hides what lower layers have in it


@dataclass(frozen=True)
class Usage:
    total: int  # [bytes] of files in all layers
    wasted: int  # [bytes] those of them that a later layer hides

    @property
    def efficiency(self) -> float:
        """The share that a container sees; 1 for an image without any file."""
        return 1 - self.wasted / self.total if self.total else 1.0


def layer_folders(graph_driver: str) -> list[Path]:
    """Folders of the layers, the newest first, from `docker image inspect`'s GraphDriver as JSON.

    Empty where the engine does not keep them as overlay2 does, or where they cannot be read.
    """
    found = json.loads(graph_driver) or {}  # null: containerd's store
    if found.get("Name") != "overlay2":
        return []
    data = found["Data"]
    names = [data["UpperDir"], *data.get("LowerDir", "").split(":")]
    folders = [Path(name) for name in names if name]
    return folders if all(os.access(folder, os.R_OK) for folder in folders) else []


def is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False


def hidden(path: str, covered: set[str]) -> bool:
    """True if a later layer has the path, or something else in place of a folder above it."""
    while path:
        if path in covered:
            return True
        path = os.path.dirname(path)
    return False


def entries(layer: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All but the folders, with their paths inside the layer."""
    for root, folders, files in os.walk(layer):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        for name in [*files, *links]:
            path = os.path.join(root, name)
            yield os.path.relpath(path, layer), os.lstat(path)


def opaque_folders(layer: Path) -> Iterator[str]:
    for root, _, _ in os.walk(layer):
        if root != str(layer) and is_opaque(root):
            yield os.path.relpath(root, layer)


def usage(layers: list[Path]) -> Usage:
    """Bytes of layers, newest first. A removed file is a device of its name in a later layer."""
    covered: set[str] = set()
    total = wasted = 0
    for layer in layers:
        here = set(opaque_folders(layer))
        for path, found in entries(layer):
            here.add(path)
            if stat.S_ISREG(found.st_mode):
                total += found.st_size
                wasted += found.st_size if hidden(path, covered) else 0
        covered |= here
    return Usage(total, wasted)
