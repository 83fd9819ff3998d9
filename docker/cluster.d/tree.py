# SPDX-License-Identifier: Apache-2.0
"""The job trees that the containers see as /opt/ml."""

from __future__ import annotations

import argparse
import errno
import shutil
from pathlib import Path

from engine import Docker

OTHER_FOLDER = "give this user the folder (chown), or name another one with --tree"
OTHER_DISK = (
    "free some space, or name a folder on another disk (--tree; TMPDIR where it is not given)"
)
ADVICE = dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), OTHER_FOLDER)
ADVICE |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), OTHER_DISK)


def sentence(error: OSError) -> str:
    """Sentence on the fault of a folder, and what to do."""
    # Python, where it finds no place for temporary files, names no file but a list of folders.
    advice = ADVICE.get(error.errno or 0, "" if error.filename else OTHER_DISK)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}" + (f"; {advice}" if advice else "")


def make_trees(docker: Docker, options: argparse.Namespace, folder: Path) -> None:
    """Has the image's own launcher write the job's trees, so that nothing need be built here."""
    mounts = ["--volume", f"{folder}:/job"]
    words = ["--make-tree", "/job/tree", "--replace", "--copy", "--hosts", str(options.hosts)]

    def source(path: str) -> str:
        """Mounts a folder of this machine; its name in the container."""
        inside = f"/source/{len(mounts)}"
        try:
            mounts.extend(["--volume", f"{Path(path).resolve(strict=True)}:{inside}:ro"])
        except OSError as error:
            raise SystemExit(f"docker/cluster: {path}: {error.strerror}") from None
        return inside

    if options.code:
        words += ["--code", source(options.code)]
    for channel in options.channel:
        name, equals, path = channel.partition("=")
        if not equals:
            raise SystemExit(f"docker/cluster: --channel {channel}: expected NAME=DIR")
        words += ["--channel", f"{name}={source(path)}"]
    for text in options.hyperparameter:
        words += ["--hyperparameter", text]
    for name in ("program", "processes", "mp_parameters"):
        if (value := getattr(options, name)) is not None:
            words += ["--" + name.replace("_", "-"), str(value)]
    run = ("run", "--rm", "--network", "none")
    docker.call(*run, *mounts, options.image, *words, what="making the job's trees")


def host_folders(tree: Path, hosts: int) -> list[Path]:
    """Base folder of each host: the tree itself for one, a folder each for more."""
    if hosts == 1:
        return [tree]
    return [tree / f"algo-{number}" for number in range(1, hosts + 1)]


def mount_options(folder: Path, suffix: str = "") -> list[str]:
    """Mounts a host's folders where the service does: one by one, for /opt/ml/code is the image's
    where the job brings none."""
    code = folder / "code"
    names = ["input", "output", "model", "checkpoints"]
    if code.is_dir() and any(code.iterdir()):
        names.append("code")
    for name in names:
        (folder / name).mkdir(exist_ok=True)
    return [
        word for name in names for word in ("--volume", f"{folder / name}:/opt/ml/{name}{suffix}")
    ]


def prepared_folders(docker: Docker, options: argparse.Namespace, parent: Path) -> list[Path]:
    """The hosts' base folders under `parent`, made unless they are to be used as they are."""
    parent.mkdir(parents=True, exist_ok=True)
    tree = parent / "tree"
    if options.program or not tree.exists():
        make_trees(docker, options, parent)
    folders = host_folders(tree, options.hosts)
    missing = [folder for folder in folders if not (folder / "input/config").is_dir()]
    if missing:
        raise SystemExit(
            f"docker/cluster: {missing[0]} is no job tree of one of {options.hosts} hosts; "
            "give --program to have the trees made again"
        )
    return folders


def remove_tree(docker: Docker, image: str, folder: Path) -> None:
    """The containers write as root; where we are not, a container has to remove it as well."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        mount = f"{folder}:/job"
        remove = ["find", "/job", "-mindepth", "1", "-delete"]
        docker.try_call("run", "--rm", "--network", "none", "--volume", mount, image, *remove)
        shutil.rmtree(folder, ignore_errors=True)
