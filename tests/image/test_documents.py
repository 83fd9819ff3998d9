# SPDX-License-Identifier: Apache-2.0
"""SBOMs, licences, owners of files, provenance."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.image.engine import ROOT, Docker

Document = dict[str, Any]
FOLDER = "/usr/share/doc/smp"
# A name that only pulls in others; it has no file, so no text either.
WITHOUT_TEXT = {"cuda-toolkit"}
# Versions that the programs themselves print, under the names of versions.txt.
SAY = """\
import re, subprocess, torch
def said(*command):
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.search(r"[0-9]+[.][0-9.]+", text)[0]
print("python", said("python3", "--version"))
print("torch", torch.__version__.partition("+")[0])
print("cuda", torch.version.cuda)
print("nccl", ".".join(map(str, torch.cuda.nccl.version())))
print("openmpi", said("mpirun", "--version"))
print("libfabric", said("fi_info", "--version"))
"""


@pytest.fixture(scope="module")
def documents(docker: Docker, image: str) -> dict[str, Document]:
    found = {}
    for kind in ("cdx", "spdx"):
        printed = docker(
            "run", "--rm", "--network", "none", image, "cat", f"{FOLDER}/sbom.{kind}.json"
        )
        found[kind] = json.loads(printed.stdout)
    return found


def listed(docker: Docker, image: str, *command: str) -> set[str]:
    printed = docker("run", "--rm", "--network", "none", image, *command)
    assert printed.returncode == 0, printed.stderr
    return set(printed.stdout.split())


def test_cyclonedx_lists_what_dpkg_and_pip_list(
    docker: Docker, image: str, documents: dict[str, Document]
) -> None:
    parts = [part for part in documents["cdx"]["components"] if part["scope"] == "required"]
    names = {
        kind: {
            f"{part['name']}={part['version']}" for part in parts if f"pkg:{kind}/" in part["purl"]
        }
        for kind in ("deb", "pypi")
    }

    form = "--showformat=${Package}=${Version}\n"
    assert names["deb"] == listed(docker, image, "dpkg-query", "--show", form)
    pip = listed(docker, image, "pip", "list", "--format=freeze", "--disable-pip-version-check")
    assert {name.lower().replace("_", "-") for name in names["pypi"]} == {
        name.lower().replace("==", "=").replace("_", "-") for name in pip
    }


def test_both_documents_hold_the_same_components_each_once(documents: dict[str, Document]) -> None:
    cyclonedx, spdx = documents["cdx"], documents["spdx"]
    references = [part["bom-ref"] for part in cyclonedx["components"]]
    packages = [package["SPDXID"] for package in spdx["packages"]]

    assert (cyclonedx["bomFormat"], cyclonedx["specVersion"]) == ("CycloneDX", "1.5")
    assert spdx["spdxVersion"] == "SPDX-2.3"
    assert len(references) == len(set(references)) == len(packages) - 1
    assert len(packages) == len(set(packages))
    for relation in spdx["relationships"]:
        assert relation["relatedSpdxElement"] in packages


def test_the_component_of_the_document_is_the_image(
    docker: Docker, image: str, documents: dict[str, Document]
) -> None:
    label = '{{index .Config.Labels "org.opencontainers.image.version"}}'
    version = docker("image", "inspect", "--format", label, image).stdout.strip()

    root = documents["cdx"]["metadata"]["component"]

    assert (root["name"], root["version"]) == ("smp-train", version)


def test_every_component_states_a_licence_and_has_its_text(docker: Docker, image: str) -> None:
    shown = docker("run", "--rm", "--network", "none", image, "cat", f"{FOLDER}/licences.txt")
    paths = [line.strip() for line in shown.stdout.splitlines() if line.startswith("  ")]
    there = docker("run", "--rm", "--network", "none", image, "ls", *paths)
    without = []
    for block in shown.stdout.split("\n\n")[1:]:
        head, *texts = block.strip().splitlines()
        if not texts and "see the package" not in head:
            without.append(head.split()[0])

    assert len(paths) > 200
    assert there.returncode == 0, there.stderr[-2000:]
    assert set(without) <= WITHOUT_TEXT


def test_the_versions_are_those_that_the_programs_state(docker: Docker, image: str) -> None:
    run = ("run", "--rm", "--network", "none", image)
    shown = docker(*run, "cat", f"{FOLDER}/versions.txt").stdout
    said = docker(*run, "python", "-c", SAY)
    assert said.returncode == 0, said.stderr

    versions = dict(line.split(" ") for line in shown.splitlines())
    for line in said.stdout.splitlines():
        name, version = line.split(" ")
        # Debian adds its revision, CUDA's package a patch level.
        assert versions[name] == version or versions[name].startswith(
            (version + "-", version + ".")
        )
    assert {"smp-train", "cudnn", "rdma-core"} <= versions.keys()


def test_every_program_file_belongs_to_exactly_one_component(docker: Docker, image: str) -> None:
    mount = f"{ROOT / 'docker/build'}:/mounted:ro"

    done = docker(
        *("run", "--rm", "--network", "none", "--volume", mount, image),
        *("python", "/mounted/inventory.py", "orphans"),
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert int(done.stdout.split()[1]) > 500


def test_provenance_names_image_base_and_locks(docker: Docker, image: str, tmp_path: Path) -> None:
    inspected = docker("image", "inspect", image).stdout
    (tmp_path / "inspect.json").write_text(inspected)
    (tmp_path / "engine.json").write_text('{"Version": "20.10.24"}')
    command = [sys.executable, str(ROOT / "ci/provenance.py"), str(tmp_path)]

    done = subprocess.run(
        [*command, "base:tag", "sha256:" + "a" * 64, "WITH_COMPILE=0"],
        capture_output=True,
        text=True,
        check=True,
    )

    statement = json.loads(done.stdout)
    definition = statement["predicate"]["buildDefinition"]
    found = {entry["name"]: entry.get("digest") for entry in definition["resolvedDependencies"]}
    lock = ROOT / "docker/locks/python.lock"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert "sha256:" + statement["subject"][0]["digest"]["sha256"] == json.loads(inspected)[0]["Id"]
    assert found["base:tag"] == {"sha256": "a" * 64}
    assert found["docker/locks/python.lock"] == {
        "sha256": hashlib.sha256(lock.read_bytes()).hexdigest()
    }
    assert definition["externalParameters"]["arguments"] == {"WITH_COMPILE": "0"}
