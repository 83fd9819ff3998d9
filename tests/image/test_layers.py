# SPDX-License-Identifier: Apache-2.0
"""Bytes that ci/image_layers.py takes for wasted; needs no engine."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ci.image_layers import Usage, layer_folders, usage


def layer(folder: Path, **sizes: int) -> Path:
    """A layer with files of these sizes; `a__b` is b in folder a."""
    for name, size in sizes.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    folder.mkdir(exist_ok=True)
    return folder


def remove(folder: Path, name: str) -> None:
    """As overlay2 has it: a character device 0:0 of the name."""
    try:
        os.mknod(folder / name, stat.S_IFCHR, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("only root makes devices here")


def test_files_that_are_seen_are_not_wasted(tmp_path: Path) -> None:
    old = layer(tmp_path / "old", usr__a=10, etc__b=20)
    new = layer(tmp_path / "new", usr__c=30)

    assert usage([new, old]) == Usage(total=60, wasted=0)


def test_each_version_but_the_last_of_a_file_is_wasted(tmp_path: Path) -> None:
    first = layer(tmp_path / "first", etc__list=10, etc__other=100)
    second = layer(tmp_path / "second", etc__list=20)
    third = layer(tmp_path / "third", etc__list=30)

    used = usage([third, second, first])

    assert used == Usage(total=160, wasted=30)
    assert used.efficiency == pytest.approx(1 - 30 / 160)


def test_a_removed_file_and_all_of_a_removed_folder_are_wasted(tmp_path: Path) -> None:
    old = layer(tmp_path / "old", tmp__cache__a=10, tmp__cache__b=20, tmp__kept=40, log=80)
    new = layer(tmp_path / "new", tmp__new=1)
    remove(new, "log")
    remove(new / "tmp", "cache")

    assert usage([new, old]) == Usage(total=151, wasted=110)


def test_a_folder_that_was_made_anew_hides_what_was_in_it(tmp_path: Path) -> None:
    old = layer(tmp_path / "old", opt__a=10, opt__b=20)
    new = layer(tmp_path / "new", opt__a=5)
    try:
        os.setxattr(new / "opt", "trusted.overlay.opaque", b"y")
    except OSError:
        pytest.skip("only root sets this attribute, and not on every file system")

    assert usage([new, old]) == Usage(total=35, wasted=30)


def test_a_link_in_place_of_a_folder_hides_it_and_what_it_names_is_not_followed(
    tmp_path: Path,
) -> None:
    elsewhere = layer(tmp_path / "elsewhere", big=1000)
    old = layer(tmp_path / "old", lib__a=10)
    new = layer(tmp_path / "new")
    (new / "lib").symlink_to(elsewhere)

    assert usage([new, old]) == Usage(total=10, wasted=10)


def test_an_engine_without_such_layers_has_none(tmp_path: Path) -> None:
    def found(name: str, **data: str) -> list[Path]:
        return layer_folders(json.dumps({"Name": name, "Data": data}))

    upper, lower = layer(tmp_path / "upper"), layer(tmp_path / "lower")

    assert found("overlay2", UpperDir=str(upper), LowerDir=f"{lower}:{upper}") == [
        upper,
        lower,
        upper,
    ]
    assert found("overlay2", UpperDir=str(upper)) == [upper]
    assert found("overlay2", UpperDir=str(tmp_path / "hidden")) == []
    assert layer_folders('{"Name": "btrfs", "Data": null}') == []
