# SPDX-License-Identifier: Apache-2.0
"""`ci/gpu prepare`: what a machine with a GPU needs of ours, built where it is not.

Such a machine has Python, torch and its CUDA, and nothing else to build or install with. Only the
sources that bind to Python see its headers, so the modules are compiled against the torch that is
here and the headers of the interpreter that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from pairs import ROOT, ask, interpreter

BUILD = ROOT / "build" / "gpu-build"
LIMIT = 64 << 20  # [bytes]
PROGRAMS = ("gpu_nccl_test", "gpu_program_test")
TARGETS = ("smp_runtime_module", "smp_smddp_module", *PROGRAMS)
# As the preset `release`, whose objects the compiler's cache then has.
FLAGS = "-O2 -g1 -DNDEBUG"
#: Libraries of C and the compiler: every Linux that runs torch has them, and newer ones.
EVERYWHERE = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|util|resolv))\.so[.\d]*")


def prepare(words: list[str]) -> int:
    """Makes the folder that `ci/gpu remote` takes. Raises SystemExit with the reason if it cannot.

    It holds site/ (the package with its two modules), bin/ (test programs), lib/ (libfabric and
    what it loads) and manifest.json.
    """
    parser = argparse.ArgumentParser(prog="ci/gpu prepare")
    parser.add_argument("--python", default="")
    parser.add_argument("--architectures", default="90-real")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "gpu")
    options = parser.parse_args(words)
    begin = time.monotonic()
    python = options.python or interpreter("python3.12")
    build(python, options.architectures)
    shutil.rmtree(options.to, ignore_errors=True)
    lay_out(options.to)
    problems = unresolved(options.to)
    if problems:
        raise SystemExit("ci/gpu prepare: what was built cannot be loaded:\n" + "\n".join(problems))
    size = sum(file.stat().st_size for file in options.to.rglob("*") if file.is_file())
    if size > LIMIT:
        raise SystemExit(
            f"ci/gpu prepare: {options.to} has {size >> 20} MiB; at most {LIMIT >> 20} travel. "
            "Were the modules stripped, and are they built for one architecture?"
        )
    manifest = {
        "commit": commit(),
        "python": version_of(python),
        "torch": torch_version(),
        "architectures": options.architectures,
        "bytes": size,
    }
    (options.to / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(
        f"gpu bundle: {options.to}, {size / (1 << 20):.1f} MiB, for Python {manifest['python']} "
        f"and torch {manifest['torch']}, in {time.monotonic() - begin:.0f} s",
        file=sys.stderr,
    )
    return 0


def version_of(python: str) -> str:
    return ask(python, "import platform; print(platform.python_version())")


def build(python: str, architectures: str) -> None:
    compiled_with = os.environ.get("SMP_PYTHON") or str(ROOT / ".venv" / "bin" / "python")
    configure = [
        *("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja"),
        *("-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DCMAKE_CXX_FLAGS_RELWITHDEBINFO={FLAGS}"),
        *("-DSMP_DEVELOPER_MODE=ON", "-DSMP_WITH_CUDA=ON"),
        f"-DCMAKE_CUDA_ARCHITECTURES={architectures}",
        f"-DSMP_PYTHON={compiled_with}",
        f"-DSMP_MODULE_PYTHON={python}",
    ]
    for command in (configure, ["cmake", "--build", BUILD, "--target", *TARGETS]):
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=ROOT, stdout=sys.stderr, check=False)
        if done.returncode != 0:
            raise SystemExit(f"ci/gpu prepare: failed: {' '.join(words)}")


def lay_out(folder: Path) -> None:
    install = ["cmake", "--install", BUILD, "--component", "python", "--strip", "--prefix"]
    run(*map(str, install), str(folder / "site"))
    (folder / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        run("strip", "-o", str(folder / "bin" / program), str(BUILD / "bin" / program))
    libraries = folder / "lib"
    libraries.mkdir()
    for path in closure("libfabric.so.1"):
        shutil.copy2(path.resolve(), libraries / path.name)


def run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def closure(name: str) -> list[Path]:
    """A library of this machine and all that it loads, but for what is everywhere."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    found = re.search(rf"^\s*{re.escape(name)} \(libc6,x86-64.*=> (\S+)$", listing.stdout, re.M)
    if not found:
        raise SystemExit(
            f"ci/gpu prepare: {name} is not installed; run ci/setup, whose Debian packages have it"
        )
    library = Path(found.group(1))
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    paths = [Path(path) for path in re.findall(r"=> (/\S+)", needed)]
    return [library, *(path for path in paths if not EVERYWHERE.fullmatch(path.name))]


def unresolved(folder: Path) -> list[str]:
    """Libraries that are not found, and symbols that nothing but the interpreter can have."""
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(torch_libraries())}
    problems = []
    for file in [*folder.glob("site/smdistributed/*.so"), *folder.glob("bin/*")]:
        found = subprocess.run(
            ["ldd", "-r", file], env=environment, capture_output=True, text=True, check=False
        )
        text = found.stdout + found.stderr
        for library in re.findall(r"(\S+) => not found", text):
            problems.append(f"{file.name}: {library} is not found")
        for symbol, where in re.findall(r"undefined symbol: (\S+)\s+\((.*)\)", text):
            # libtorch_python itself gets these from the interpreter.
            if not symbol.lstrip("_").startswith("Py"):
                problems.append(f"{file.name}: {symbol} is undefined ({where})")
    return problems


def torch_libraries() -> list[str]:
    torch = Path(torch_folder())
    beside = sorted(str(folder) for folder in torch.parent.glob("nvidia/*/lib"))
    return [str(torch / "lib"), *beside]


def read_cache(name: str) -> str:
    """A variable of the build; empty if it has none of that name."""
    cache = BUILD / "CMakeCache.txt"
    found = re.search(rf"^{name}:\w+=(.*)$", cache.read_text(), re.M) if cache.exists() else None
    return found.group(1) if found else ""


def torch_folder() -> str:
    return ask(
        read_cache("SMP_PYTHON"),
        "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])",
    )


def torch_version() -> str:
    return ask(
        read_cache("SMP_PYTHON"), "import importlib.metadata as m; print(m.version('torch'))"
    )


def commit() -> str:
    """The commit that was built; with a + behind it where files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain") else "")
