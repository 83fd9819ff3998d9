# SPDX-License-Identifier: Apache-2.0
"""A registry of our own on loopback: Debian's docker-registry, installed or only unpacked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.image.engine import ROOT

MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)


def registry_program() -> str:
    """The program, unpacked under build/ where it is not installed: no service, no root."""
    if installed := shutil.which("docker-registry"):
        return installed
    folder = ROOT / "build" / "registry"
    program = folder / "usr/bin/docker-registry"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            ["apt-get", "download", "docker-registry"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if got.returncode != 0:
            pytest.skip(f"docker-registry is not installed and cannot be had: {got.stderr[-300:]}")
        package = next(folder.glob("docker-registry_*.deb"))
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    return str(program)


@dataclass(frozen=True)
class Registry:
    address: str  # 127.0.0.1:PORT
    folder: Path  # where it keeps what it was sent

    def manifest(self, name: str, reference: str) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self.address}/v2/{name}/manifests/{reference}",
            headers={"Accept": ", ".join(MANIFESTS)},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def layer_bytes(self, name: str, reference: str) -> dict[str, int]:
        """Compressed size of each layer by its digest."""
        layers = self.manifest(name, reference)["layers"]
        return {layer["digest"]: layer["size"] for layer in layers}


@contextmanager
def running_registry(folder: Path) -> Iterator[Registry]:
    """Runs until the end of the block, on a port that the system chose."""
    configuration = folder / "registry.yml"
    configuration.write_text(
        "version: 0.1\nlog: {level: info}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'blobs'}}}}}\n"
        "http: {addr: '127.0.0.1:0', secret: only-for-tests}\n"
    )
    process = subprocess.Popen(
        [registry_program(), "serve", str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on (127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail("docker-registry ended before it listened")
        # The registry's log goes on; nobody reading it would stop the registry at 64 KB.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield Registry(found[1], folder / "blobs")
        drain.kill()
        drain.wait()
    finally:
        process.terminate()
        process.wait(timeout=30)
