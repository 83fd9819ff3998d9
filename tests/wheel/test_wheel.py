# SPDX-License-Identifier: Apache-2.0
"""The wheel for .venv's torch and Python: what is in it, where it loads, what it says elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from auditwheel.elfutils import elf_find_versioned_symbols
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[2]
# Amazon Linux 2023's; GCC 11 has no later ones.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11, 0, 0)}
JOB = """
import os
import smdistributed.modelparallel.torch as smp, torch
smp.init({"partitions": 2, "microbatches": 2})
torch.manual_seed(0)
model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
@smp.step
def step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss
loss = step(model, torch.ones(4, 4)).reduce_mean().item()
print(f"loss {loss}" + os.linesep, end="")  # in one write, so that mpirun does not mix two ranks
optimizer.step()
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    done = subprocess.run([ROOT / "ci" / "wheel"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return ROOT / done.stdout.strip()


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An environment of its own with the wheel, which sees .venv's torch behind it."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    uv = ROOT / ".venv" / "bin" / "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel], check=True
    )
    (site,) = (folder / "lib").glob("python*/site-packages")
    packages = sorted((ROOT / ".venv" / "lib").glob("python*/site-packages"))
    (site / "torch_of_build.pth").write_text(f"{packages[0]}\n")
    return python


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        command, env=kept | variables, capture_output=True, text=True, timeout=240, check=False
    )


def elf_files(folder: Path) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    ]


def test_no_symbol_is_newer_than_amazon_linux_2023_has(unpacked):
    files = elf_files(unpacked)
    assert len(files) == 7  # two modules, two libraries, the launcher and its two
    for path in files:
        with path.open("rb") as file:
            for library, version in elf_find_versioned_symbols(ELFFile(file)):
                name, _, numbers = version.partition("_")
                if name in NEWEST and re.fullmatch(r"[0-9.]+", numbers):
                    found = tuple(map(int, numbers.split(".")))
                    assert found <= NEWEST[name], f"{path.name} needs {version} of {library}"


def test_it_is_small_and_brings_no_library_of_others(wheel, unpacked):
    assert wheel.stat().st_size < 25_000_000
    assert "manylinux_2_34_x86_64" in wheel.name
    libraries = {path.name for path in elf_files(unpacked) if path.parent.name in ("lib", "smp")}
    assert libraries == {
        "libsmp_plan.so.1",
        "libsmp_runtime.so.1",
        "libsmp_hostname.so",
        "libsmp_transfer.so",
    }


def test_a_job_of_two_ranks_runs_from_it(python, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
    done = run(*mpirun, python, tmp_path / "job.py")

    assert done.returncode == 0, done.stderr[-2000:]
    losses = done.stdout.splitlines()
    assert len(losses) == 2
    assert losses[0] == losses[1]
    assert run(python.with_name("smp-train"), "--help").returncode == 0


def test_the_backend_alone_needs_one_import(python):
    done = run(python, "-c", "import smddp, torch.distributed as d; print(d.Backend.SMDDP)")

    assert done.stdout.strip() == "smddp", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("version", "cuda", "sentence"),
    [
        ("2.9.1+cu128", "'12.8'", "this is torch 2.9.1+cu128, with CUDA 12.8: install its wheel"),
        ("{}.0+cpu", "None", "this is torch {}.0+cpu, without CUDA: install its wheel for torch"),
        ("{}.0+cu126", "'12.6'", "with CUDA 12.6: install its wheel for torch {} that ends in"),
    ],
)
def test_another_torch_is_told_in_a_sentence(python, tmp_path, version, cuda, sentence):
    built = run(python, "-c", "import smdistributed._built_for as b; print(b.TORCH)")
    minor = built.stdout.strip()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('not reached')")
    (tmp_path / "torch" / "version.py").write_text(
        f"__version__ = '{version.format(minor)}'\ncuda: Optional[str] = {cuda}\n"
    )
    done = run(python, "-c", "import smdistributed", PYTHONPATH=str(tmp_path))

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: open-smp-train cannot be used here: it was built for ")
    assert sentence.format(minor) in last


def test_without_torch_it_says_which_one_to_install(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = run(sys.executable, "-S", "-c", "import smdistributed", PYTHONPATH=str(tmp_path))

    assert "and there is no torch: pip install 'torch==" in done.stderr


def test_half_an_installation_names_what_is_missing(unpacked):
    library = unpacked / "smdistributed" / "lib" / "libsmp_runtime.so.1"
    kept = library.rename(library.with_suffix(".kept"))
    try:
        done = run(sys.executable, "-c", "import smdistributed", PYTHONPATH=str(unpacked))
    finally:
        kept.rename(library)

    assert f"its file {library} is missing: install it anew" in done.stderr
