# SPDX-License-Identifier: Apache-2.0
"""The locks that ci/setup installs, and how it tells uv what pip is told."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents.named_tests import ROOT

LOCKS = ROOT / "docker" / "locks"


def names(lock: Path) -> set[str]:
    return set(re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def installer() -> ModuleType:
    path = ROOT / "ci" / "install_locks.py"
    specification = importlib.util.spec_from_file_location("install_locks", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.in")), ids=lambda path: path.stem)
def test_the_size_beside_a_lock_is_of_that_lock(lock: Path) -> None:
    text = lock.with_suffix(".lock")
    sum_of_lock = hashlib.sha256(text.read_bytes()).hexdigest()

    line = re.search(
        rf"^{text.name} ([0-9a-f]+) ([0-9]+)$", (LOCKS / "sizes.txt").read_text(), re.M
    )

    assert line is not None, f"{text.name} has no size; run ci/lock"
    assert line[1] == sum_of_lock, f"{text.name} has changed since its size was noted; run ci/lock"
    assert int(line[2]) > 0


def test_a_lock_holds_only_what_it_adds() -> None:
    chain = ["python", "uv", "build", "examples", "dev"]

    seen: set[str] = set()
    for name in chain:
        found = names(LOCKS / f"{name}.lock")
        assert not found & seen, name
        seen |= found


def test_the_first_locks_hold_what_examples_import() -> None:
    there = names(LOCKS / "python.lock") | names(LOCKS / "examples.lock")

    assert {"torch", "numpy", "scikit-learn", "transformers"} <= there


def test_the_image_notes_the_locks_as_setup_does() -> None:
    setup = (ROOT / "ci" / "setup").read_text()
    image = (ROOT / "docker" / "build" / "dev_install.sh").read_text()

    filled = r"(?:locks_of=\(|\|\| fill )(\w+\.sha256) ((?:\w+\.lock ?)+)"

    assert {stamp: locks.split() for stamp, locks in re.findall(filled, setup)} == {
        "locks.sha256": ["python.lock", "build.lock", "examples.lock"],
        "run.sha256": ["python.lock", "examples.lock"],
        "tests.sha256": ["dev.lock"],
    }
    assert 'sum_of "$locks"/{python,build,examples}.lock >"$venv/locks.sha256"' in image
    assert 'sum_of "$locks/dev.lock" >"$venv/tests.sha256"' in image


def test_pips_settings_are_read_from_its_own_list(installer: ModuleType) -> None:
    listed = "global.timeout='10'\ninstall.no-index='0'\nfreeze.all='1'\n:env:.timeout='20'\n"

    assert installer.pip_settings(listed) == {"timeout": "20", "no-index": "0"}


def test_uv_is_told_what_pip_is_told(installer: ModuleType) -> None:
    settings = {
        "index-url": "https://index.invalid/simple",
        "extra-index-url": "https://a.invalid https://b.invalid",
        "find-links": "/nowhere https://c.invalid",
        "trusted-host": "index.invalid",
        "cert": "/ca.pem",
        "default-timeout": "180",
        "disable-pip-version-check": "1",
        "no-index": "0",
    }

    options, variables = installer.uv_words(settings)

    assert options == [
        *("--default-index", "https://index.invalid/simple"),
        *("--index", "https://a.invalid", "--index", "https://b.invalid"),
        *("--find-links", "https://c.invalid"),
        *("--allow-insecure-host", "index.invalid"),
    ]
    assert variables == {"SSL_CERT_FILE": "/ca.pem", "UV_HTTP_TIMEOUT": "180"}


def test_a_setting_that_uv_has_no_word_for_leaves_it_to_pip(installer: ModuleType) -> None:
    assert installer.uv_words({"client-cert": "/key.pem"}) is None
    assert installer.uv_words({"no-index": "true"})[0] == ["--no-index"]
