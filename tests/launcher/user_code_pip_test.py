# SPDX-License-Identifier: Apache-2.0
"""Packages are installed before the user's code runs, by a real pip and without a network."""

from __future__ import annotations

import http.server
import importlib
import json
import shutil
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest
from http_answers import serving
from object_store import HELLO, KEYS, job_tree, tar_gz


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter of its own, with pip and setuptools as wheels beside it: no network needed."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True)
    if sys.version_info >= (3, 12):  # whose ensurepip has no setuptools
        packages = next(home.glob("lib/python*/site-packages"))
        for name in ("setuptools", "_distutils_hack"):
            shutil.copytree(Path(importlib.import_module(name).__file__).parent, packages / name)
    return str(home / "bin" / "python")


PIP = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}


def make_wheel(folder: Path, name: str, text: str, version: str = "1.0") -> None:
    """The smallest package that pip installs."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", text)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_requirements_in_the_archive_are_installed_first(folder, run, python):
    make_wheel(folder / "wheels", "greeting", "text = 'good day'")
    archive = folder / "a.tar.gz"
    archive.write_bytes(
        tar_gz(
            {"train.py": "import greeting; print(greeting.text)", "requirements.txt": "greeting\n"}
        )
    )

    result = run(
        job_tree(folder, str(archive)),
        SM_LAUNCH_PYTHON=python,
        PIP_FIND_LINKS=str(folder / "wheels"),
        **PIP,
    )

    assert result.code == 0, result.err
    assert "good day" in result.out
    assert "Installing dependencies from requirements.txt" in result.err


def test_a_torch_that_is_replaced_is_named_before_the_script_starts(folder, run, python):
    for version in ("2.0", "2.1"):
        make_wheel(folder / "wheels", "torch", "", version)
    settings = {
        "SM_LAUNCH_PYTHON": python,
        "PIP_FIND_LINKS": str(folder / "wheels"),
        "SM_LAUNCH_REPORT": "0",
        **PIP,
    }

    def installed(requirement: str) -> list[str]:
        tree = job_tree(folder / f"{requirement}-{time.monotonic_ns()}", None)
        (tree.base / "code" / "train.py").write_text("import sys; print('begins', file=sys.stderr)")
        (tree.base / "code" / "requirements.txt").write_text(f"{requirement}\n")
        result = run(tree, **settings)
        assert result.code == 0, result.err
        return [line for line in result.err.splitlines() if "replaced" in line or line == "begins"]

    assert installed("torch==2.0") == ["begins"]  # there was none
    assert installed("torch") == ["begins"]
    warning, begins = installed("torch==2.1")
    assert "pip replaced torch 2.0 by 2.1" in warning
    assert begins == "begins"


def test_a_requirement_that_is_not_there_fails_with_pips_own_words(folder, run, python):
    """sagemaker-training-toolkit#19, sagemaker-containers#241."""
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(HELLO)
    (tree.base / "code" / "requirements.txt").write_text("no-such-package-anywhere==9\n")

    result = run(tree, SM_LAUNCH_PYTHON=python, **PIP)

    assert result.code == 1
    assert tree.failure.splitlines()[:2] == ["InstallRequirementsError:", "ExitCode 1"]
    assert "No matching distribution found for no-such-package-anywhere==9" in tree.failure[:1024]
    assert f'Command "{python} -m pip install -r requirements.txt"' in tree.failure
    assert "hello from" not in result.out


def test_an_invalid_requirement_is_shown(folder, run, python):
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(HELLO)
    (tree.base / "code" / "requirements.txt").write_text("a b c ===\n")

    run(tree, SM_LAUNCH_PYTHON=python, **PIP)

    assert tree.failure.startswith("InstallRequirementsError:\nExitCode 1\n")
    assert "Invalid requirement: 'a b c ==='" in tree.failure[:1024]


def test_a_setup_that_fails_shows_its_error(folder, run, python):
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(HELLO)
    (tree.base / "code" / "setup.py").write_text("raise RuntimeError('no compiler today')\n")

    run(tree, SM_LAUNCH_PYTHON=python, PIP_NO_BUILD_ISOLATION="0", **PIP)

    assert tree.failure.startswith("InstallModuleError:\nExitCode 1\n")
    assert f'Command "{python} -m pip install ."' in tree.failure


BACKEND = """
import zipfile

INFO = {
    "METADATA": "Metadata-Version: 2.1\\nName: MODULE\\nVersion: 1.0\\n",
    "WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "RECORD": "",
}

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "MODULE-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for source in SOURCES:
            wheel.write(source)
        for file, text in INFO.items():
            wheel.writestr(f"MODULE-1.0.dist-info/{file}", text)
    return name
"""


def package(module: str, sources: dict[str, str]) -> dict[str, str]:
    """A package with a build backend of its own: building it needs nothing that is not here."""
    project = '[build-system]\nrequires = []\nbuild-backend = "mybuild"\nbackend-path = ["."]\n'
    return {
        "pyproject.toml": project,
        "mybuild.py": f"SOURCES = {list(sources)}" + BACKEND.replace("MODULE", module),
        "setup.py": "# makes it a package\n",
        **sources,
    }


def test_a_package_is_installed_and_run_as_a_module(folder, run, python):
    files = package("train", {"train.py": "print('as', __name__, __spec__.name)"})
    archive = folder / "a.tar.gz"
    archive.write_bytes(tar_gz(files))

    result = run(job_tree(folder, str(archive)), SM_LAUNCH_PYTHON=python, **PIP)

    assert result.code == 0, result.err
    assert "as __main__ train" in result.out
    assert "Installing module with the following command:" in result.err


def test_a_nested_entry_point_of_a_package_is_a_dotted_module(folder, run, python):
    """sagemaker-training-toolkit#54, #20, sagemaker-python-sdk#3737."""
    script = "print('as', __spec__.name)"
    files = package("nested", {"src/__init__.py": "", "src/train.py": script})
    archive = folder / "a.tar.gz"
    archive.write_bytes(tar_gz(files))
    tree = job_tree(folder, str(archive), program="src/train.py")

    result = run(tree, SM_LAUNCH_PYTHON=python, **PIP)

    assert result.code == 0, result.err
    assert "as src.train" in result.out


def test_a_shell_script_in_an_archive_gets_its_arguments(folder, run):
    """sagemaker-training-toolkit#119: and requirements.txt is left to it."""
    archive = folder / "a.tar.gz"
    script = '#!/bin/sh\nprintf "<%s>" "$@"\n'
    archive.write_bytes(tar_gz({"run.sh": script, "requirements.txt": "x"}))

    result = run(job_tree(folder, str(archive), program="run.sh", name="a $b c"))

    assert result.code == 0, result.err
    assert "<--name><a $b c>" in result.out
    assert "requirements.txt is not installed" in result.err


ARN = "arn:aws:codeartifact:eu-west-1:123456789012:repository/dom/repo"


def test_code_artifact_is_pips_index_and_its_token_is_never_shown(folder, run, python):
    make_wheel(folder, "fromindex", "text = 'from the index'")
    wheel = next(folder.glob("fromindex-*.whl"))
    token = "sEcReT-" + "t" * 40

    def answer(handler: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        path = handler.path
        if path.startswith("/v1/authorization-token?"):
            return 200, json.dumps({"authorizationToken": token}).encode()
        if path.startswith("/v1/repository/endpoint?"):
            host = handler.headers["Host"]
            return 200, json.dumps({"repositoryEndpoint": f"http://{host}/pypi/repo/"}).encode()
        if path == "/pypi/repo/simple/fromindex/":
            return 200, f'<a href="/files/{wheel.name}">{wheel.name}</a>'.encode()
        return (200, wheel.read_bytes()) if path.startswith("/files/") else (404, b"")

    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(
        "import fromindex, os; print(fromindex.text); print(dict(os.environ))"
    )
    (tree.base / "code" / "requirements.txt").write_text("fromindex\nmissing-one\n")
    with serving(answer) as (url, seen):
        settings = {
            "SM_LAUNCH_PYTHON": python,
            "CA_REPOSITORY_ARN": ARN,
            "AWS_ENDPOINT_URL": url,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **KEYS,
        }
        failing = run(tree, **settings)
        failure = tree.failure
        (tree.base / "output" / "failure").unlink()
        (tree.base / "code" / "requirements.txt").write_text("fromindex\n")
        working = run(tree, **settings)
        plan = run(tree, "--plan", **settings)

    assert working.code == 0, working.err
    assert "from the index" in working.out
    assert failing.code == 1
    assert "No matching distribution found for missing-one" in failure
    everything = [failing.out, failing.err, failure, working.out, working.err, plan.out]
    assert all(token not in text for text in everything)
    assert "from CodeArtifact repository repo of domain dom in eu-west-1" in plan.out
    method, path, headers = seen[0]
    assert (method, path) == (
        "POST",
        "/v1/authorization-token?domain=dom&domain-owner=123456789012",
    )
    assert "/eu-west-1/codeartifact/aws4_request" in headers["authorization"]
    assert any(
        path == "/v1/repository/endpoint?domain=dom&domain-owner=123456789012&format=pypi"
        "&repository=repo"
        for _, path, _ in seen
    )
    index = [headers for _, path, headers in seen if path == "/pypi/repo/simple/fromindex/"]
    assert index
    assert index[0]["authorization"].startswith("Basic ")


def test_a_malformed_repository_is_refused_before_anything_runs(folder, run):
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(HELLO)

    result = run(tree, CA_REPOSITORY_ARN="arn:aws:s3:::bucket")

    assert result.code == 1
    assert tree.failure.startswith('CA_REPOSITORY_ARN="arn:aws:s3:::bucket": expected arn:')


def test_a_refused_token_names_repository_and_status(folder, run, python):
    refusal = json.dumps({"message": "User is not authorized"}).encode()
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(HELLO)
    (tree.base / "code" / "requirements.txt").write_text("x\n")
    with serving(lambda _: (403, refusal)) as (url, _):
        run(tree, SM_LAUNCH_PYTHON=python, CA_REPOSITORY_ARN=ARN, AWS_ENDPOINT_URL=url, **KEYS)

    assert "CodeArtifact repository repo of domain dom" in tree.failure
    assert "HTTP status 403: User is not authorized" in tree.failure
