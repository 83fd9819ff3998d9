# SPDX-License-Identifier: Apache-2.0
"""The C++ library as others see it: find_package, what it exports, and which torch it takes."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.cpp.commands import BUILD, command, succeed

LIBRARIES = ("libsmp_plan.so", "libsmp_runtime.so")


def defined_in(library) -> dict[str, str]:
    """Symbols that a library defines for others, with the letter of their kind."""
    rows = succeed("nm", "--dynamic", "--defined-only", "--demangle", library).splitlines()
    return {name: kind for _, kind, name in (row.split(" ", 2) for row in rows)}


def test_a_program_reads_its_job_by_smp_plan(outside, tmp_path):
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    config.joinpath("hyperparameters.json").write_text('{"epochs": "3"}')
    config.joinpath("inputdataconfig.json").write_text('{"training": {}}')

    out = succeed(outside / "reader", SAGEMAKER_BASE_DIR=str(tmp_path))

    assert out.splitlines()[:2] == ["3", "training"]
    assert "did you mean epochs?" in out
    linked = succeed("ldd", outside / "reader")
    assert "libsmp_plan.so.1" in linked
    assert "torch" not in linked


def test_a_program_finds_smp_runtime_and_needs_no_python(outside):
    compiled, loaded = succeed(outside / "versions").split()

    assert compiled == loaded
    linked = succeed("ldd", outside / "versions")
    assert "libsmp_runtime.so.1" in linked
    assert "not found" not in linked
    assert "libpython" not in linked


def test_another_torch_is_refused_at_load_with_both_versions(outside):
    done = command(outside / "versions", LD_PRELOAD=str(outside / "libother_torch.so"))

    assert done.returncode == 1
    assert done.stdout == ""
    assert re.search(r"was built for LibTorch 2\.\d+ and .* has LibTorch 2\.9;", done.stderr)


def test_another_torch_is_an_import_error_in_python(outside):

    done = command(
        sys.executable,
        "-c",
        "import torch; import smdistributed._runtime",
        LD_PRELOAD=str(outside / "libother_torch.so"),
        PYTHONPATH=str(BUILD / "python"),
    )

    assert done.returncode == 1
    assert re.search(r"ImportError: .* built for LibTorch .* has LibTorch 2\.9;", done.stderr)


@pytest.mark.parametrize("library", LIBRARIES)
def test_only_our_own_symbols_are_visible_and_have_versions(installed, library):
    names = defined_in(installed / "lib" / library)

    strangers = [
        name
        for name in names
        if not re.match(r"((vtable|typeinfo|typeinfo name) for )?(smp|opt_ml)::|SMP_", name)
    ]
    assert strangers == []
    assert names


def test_what_programs_may_rely_on_has_the_version_of_its_first_number(installed):
    names = defined_in(installed / "lib/libsmp_plan.so")

    public = [name for name in names if name.endswith("@@SMP_1")]
    assert any(name.startswith("smp::Job::integer") for name in public)
    assert any(name.startswith("smp::version") for name in public)
    assert [name for name in public if re.match(r"smp::\w+::\w+::", name)] == []


def test_no_code_is_in_both_libraries(installed):
    plan, runtime = (defined_in(installed / "lib" / library) for library in LIBRARIES)

    code = {name for name, kind in plan.items() if kind == "T"}
    assert code & {name for name, kind in runtime.items() if kind == "T"} == set()


@pytest.mark.parametrize("module", ["_runtime", "_smddp"])
def test_modules_of_python_hold_no_copy(module):
    [file] = (BUILD / "python/smdistributed").glob(f"{module}.*.so")

    own = succeed("nm", "--defined-only", "--demangle", file)

    assert "libsmp_runtime.so.1" in succeed("ldd", file)
    for copied in ("smp::log::write", "smp::pipeline::Engine::drive", "smp::dataparallel::Smddp"):
        assert not re.search(rf" [TtDdBb] {re.escape(copied)}", own), copied


def test_warnings_of_ours_reach_no_user(outside):
    commands = json.loads((outside / "compile_commands.json").read_text())

    for entry in commands:
        assert "-W" not in entry["command"].replace("-Wl,", "")
