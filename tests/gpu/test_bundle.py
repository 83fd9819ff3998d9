# SPDX-License-Identifier: Apache-2.0
"""ci/gpu prepare: what travels can be loaded elsewhere, and is small enough."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gpu_bundle as bundle
import pytest


def compile_library(target: Path, code: str, *options: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", target, *options],
        input=code, text=True, check=True, timeout=60,
    )  # fmt: skip


def test_what_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's own symbols come when it loads the module."""
    monkeypatch.setattr(bundle, "torch_libraries", lambda: [])
    compile_library(tmp_path / "libgone.so", "int gone(void) { return 0; }")
    modules = tmp_path / "site" / "smdistributed"
    compile_library(modules / "_good.so", "int PyLong_X(void); int f(void) { return PyLong_X(); }")
    compile_library(modules / "_bad.so", "int lost(void); int f(void) { return lost(); }")
    compile_library(
        modules / "_needy.so", "int gone(void); int f(void) { return gone(); }",
        f"-L{tmp_path}", "-lgone",
    )  # fmt: skip
    (tmp_path / "libgone.so").unlink()

    problems = bundle.unresolved(tmp_path)

    assert "_needy.so: libgone.so is not found" in problems
    assert any(one.startswith("_bad.so: lost is undefined") for one in problems)
    assert not any(one.startswith("_good.so") for one in problems)


def test_a_library_travels_with_what_it_loads() -> None:
    names = [path.name for path in bundle.closure("libfabric.so.1")]

    assert names[0] == "libfabric.so.1"
    assert not [name for name in names if name.startswith(("libc.so", "libm.so", "ld-linux"))]


def test_a_library_that_is_missing_here_is_named() -> None:
    with pytest.raises(SystemExit, match=r"libnowhere\.so\.9 is not installed"):
        bundle.closure("libnowhere.so.9")


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that ``prepare`` fills, with nothing built or looked at."""
    monkeypatch.setattr(bundle, "build", lambda _python, _architectures: None)
    monkeypatch.setattr(bundle, "unresolved", lambda _folder: [])
    monkeypatch.setattr(bundle, "torch_version", lambda: "2.11.0")
    return tmp_path / "bundle"


def prepare(folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def lay_out(target: Path) -> None:
        target.mkdir()
        with (target / "module.so").open("wb") as file:
            file.truncate(size)

    monkeypatch.setattr(bundle, "lay_out", lay_out)
    bundle.prepare(["--python", sys.executable, "--to", str(folder)])


def test_a_bundle_says_what_it_is_for(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(prepared, bundle.LIMIT, monkeypatch)

    manifest = json.loads((prepared / "manifest.json").read_text())
    assert manifest["bytes"] == bundle.LIMIT == 64 << 20
    assert manifest["torch"] == "2.11.0"
    assert manifest["python"] == sys.version.split()[0]


def test_a_bundle_that_is_too_large_is_refused(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="at most 64 travel"):
        prepare(prepared, bundle.LIMIT + 1, monkeypatch)

    assert not (prepared / "manifest.json").exists()


def test_an_interpreter_without_headers_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python3.99"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    with pytest.raises(SystemExit, match=r"python3\.99 \(does not run\)"):
        bundle.interpreter("python3.99")
