# SPDX-License-Identifier: Apache-2.0
"""Runs contract.json, which container-structure-test (schema 2.0.0) runs elsewhere as it stands."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib

from ci.image_layers import layer_folders, usage
from tests.image.engine import ROOT, Docker

CONTRACT = json.loads((Path(__file__).parent / "contract.json").read_text())
Entry = dict[str, Any]


# Keys that container-structure-test 1.16 reads; it takes other keys for mistakes, or for nothing.
KEYS = {
    "commandTests": {"name", "command", "args", "expectedOutput", "excludedOutput", "exitCode"},
    "fileExistenceTests": {"name", "path", "shouldExist"},
    "fileContentTests": {"name", "path", "expectedContents"},
}
# A function becomes one program of the C++ compiler, and computes what it did.
COMPILES = """\
import torch
from torch._inductor import metrics
def smooth(x):
    return torch.sin(x) ** 2 + torch.relu(x)
x = torch.linspace(-3, 3, 1000)
torch.testing.assert_close(torch.compile(smooth, fullgraph=True)(x), smooth(x))
print(metrics.generated_kernel_count, "kernel")
"""
METADATA_KEYS = {"envVars", "labels", "entrypoint", "cmd", "exposedPorts", "workdir", "user"}


def entries(kind: str) -> list[Any]:
    return [pytest.param(entry, id=entry["name"]) for entry in CONTRACT[kind]]


@pytest.fixture(scope="module")
def container(docker: Docker, image: str) -> Iterator[str]:
    """One container for all commands, without any network."""
    name = f"smp-contract-{uuid.uuid4().hex[:12]}"
    started = docker(
        "run", "--detach", "--name", name, "--network", "none", image, "sleep", "infinity"
    )
    assert started.returncode == 0, started.stderr
    yield name
    docker("rm", "--force", "--volumes", name)


@pytest.fixture(scope="module")
def config(docker: Docker, image: str) -> Entry:
    inspected = docker("image", "inspect", "--format", "{{json .Config}}", image)
    loaded: Entry = json.loads(inspected.stdout)
    return loaded


def test_the_contract_is_valid_for_the_other_engine() -> None:
    assert set(CONTRACT) == {"schemaVersion", "metadataTest", *KEYS}
    assert set(CONTRACT["metadataTest"]) <= METADATA_KEYS
    for kind, keys in KEYS.items():
        for entry in CONTRACT[kind]:
            assert set(entry) <= keys, entry
            # The tool puts the image's variables where a word has $NAME, also in a shell's text.
            assert not re.search(r"\$[A-Za-z_({]", " ".join(entry.get("args", []))), entry
    names = [entry["name"] for kind in KEYS for entry in CONTRACT[kind]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", entries("commandTests"))
def test_command(docker: Docker, container: str, entry: Entry) -> None:
    done = docker("exec", container, entry["command"], *entry["args"])

    assert done.returncode == entry.get("exitCode", 0), done.stdout + done.stderr
    for pattern in entry.get("expectedOutput", []):
        assert re.search(pattern, done.stdout), done.stdout + done.stderr
    for pattern in entry.get("excludedOutput", []):
        assert not re.search(pattern, done.stdout), done.stdout


@pytest.mark.parametrize("entry", entries("fileExistenceTests"))
def test_file_exists(docker: Docker, container: str, entry: Entry) -> None:
    done = docker("exec", container, "test", "-e", entry["path"])

    assert (done.returncode == 0) == entry["shouldExist"]


@pytest.mark.parametrize("entry", entries("fileContentTests"))
def test_file_content(docker: Docker, container: str, entry: Entry) -> None:
    done = docker("exec", container, "cat", entry["path"])

    for pattern in entry["expectedContents"]:
        assert re.search(pattern, done.stdout), done.stdout + done.stderr


def check_pairs(wanted: list[Entry], found: dict[str, str]) -> None:
    for entry in wanted:
        assert entry["key"] in found
        value = found[entry["key"]]
        pattern = entry["value"] if entry.get("isRegex") else f"^{re.escape(entry['value'])}$"
        assert re.search(pattern, value), f"{entry['key']} is {value!r}"


def test_metadata(config: Entry) -> None:
    wanted = CONTRACT["metadataTest"]

    check_pairs(wanted["envVars"], dict(text.split("=", 1) for text in config["Env"]))
    check_pairs(wanted["labels"], config["Labels"])
    assert config["Entrypoint"] == wanted["entrypoint"]
    assert (config["Cmd"] or []) == wanted["cmd"]
    assert config["WorkingDir"] == wanted["workdir"]
    assert config["User"] == wanted["user"]
    assert set(config["ExposedPorts"]) == {f"{port}/tcp" for port in wanted["exposedPorts"]}


def test_the_labels_name_the_torch_and_the_python_inside(
    docker: Docker, container: str, config: Entry
) -> None:
    code = "import sys, torch.version as t; print(t.__version__, t.cuda, *sys.version_info[:2])"
    done = docker("exec", container, "python", "-c", code)
    torch, cuda, *python = done.stdout.split()
    prefix = "com.amazonaws.ml.engines.sagemaker.dlc."
    named = {key.removeprefix(prefix) for key in config["Labels"] if key.startswith(prefix)}

    assert {
        f"framework.pytorch.{torch.partition('+')[0].replace('.', '-')}",
        f"device.gpu.cu{cuda.replace('.', '')}",
        f"python.py{''.join(python)}",
    } <= named


def test_library_path_is_unset_and_health_check_is_off(config: Entry) -> None:
    names = {text.split("=", 1)[0] for text in config["Env"]}
    # A driver that does not fit is told by `train`, not by a container that does not start.
    assert not names & {"LD_LIBRARY_PATH", "NVIDIA_REQUIRE_CUDA"}
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert config["StopSignal"] == "SIGTERM"


def test_sizes_are_within_budget(docker: Docker, image: str, slim: bool) -> None:
    budget = tomllib.loads((ROOT / "ci/budgets.toml").read_text())["megabytes"]
    size = int(docker("image", "inspect", "--format", "{{.Size}}", image).stdout)
    layers = docker("history", "--human=false", "--format", "{{.Size}} {{.CreatedBy}}", image)
    # Newest first: our program comes after the stage of EFA.
    ours = [line for line in layers.stdout.splitlines() if "COPY /out/ / " in line + " "]

    assert size <= budget["image_slim" if slim else "image"] * 1e6
    assert int(ours[0].split()[0]) <= budget["own_layer"] * 1e6


def test_hardly_a_byte_is_hidden_by_a_later_layer(docker: Docker, image: str) -> None:
    budgets = tomllib.loads((ROOT / "ci/budgets.toml").read_text())
    driver = docker("image", "inspect", "--format", "{{json .GraphDriver}}", image).stdout
    layers = layer_folders(driver)
    if not layers:
        pytest.skip("the engine's layers are not those of overlay2, or only root may read them")

    used = usage(layers)

    assert used.total > 1e9
    assert used.wasted <= budgets["megabytes"]["wasted"] * 1e6
    assert used.efficiency >= budgets["shares"]["efficiency"]


def test_slim_has_no_compiler_and_the_default_has_one(
    docker: Docker, image: str, slim: bool
) -> None:
    look = "type -P g++ gcc cc1plus; python -c 'import triton; print(triton.__name__)'"
    done = docker("run", "--rm", "--network", "none", image, "bash", "-c", look)

    if slim:
        assert done.stdout == ""
        assert "No module named 'triton'" in done.stderr
    else:
        assert done.stdout == "/usr/bin/g++\n/usr/bin/gcc\ntriton\n", done.stderr


def test_torch_compile_works_or_says_what_is_missing(
    docker: Docker, image: str, slim: bool
) -> None:
    # A container of its own: what is compiled stays under /tmp.
    run = ("run", "--rm", "--network", "none", image, "python", "-c", COMPILES)
    done = docker(*run, timeout=600)

    if slim:
        assert done.returncode == 1
        assert "No working C++ compiler found" in done.stderr, done.stderr[-3000:]
    else:
        assert (done.returncode, done.stdout) == (0, "1 kernel\n"), done.stderr[-3000:]


def test_history_holds_no_secret(docker: Docker, image: str, config: Entry) -> None:
    history = docker("history", "--no-trunc", image).stdout

    published = re.escape(config["Labels"]["org.opencontainers.image.source"] or "-")
    public = rf"https?://(deb\.debian\.org|github\.com)\S*|{published}"
    assert "://" not in re.sub(public, "", history)
