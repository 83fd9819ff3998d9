# SPDX-License-Identifier: Apache-2.0
"""The kernels' machine code: what docs/reference/gpu_kernels.md says of it, and how fast it can be.

No GPU is needed, but a build that compiled the kernels.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import smdistributed
from smdistributed import _runtime

from tests.gpu.kernel_code import KERNELS, Code, Kernel, disassembler, read_codes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "gpu_kernels.md"
BEGIN, END = "<!-- table: made by SMP_UPDATE_GOLDEN=1 -->\n", "<!-- end of table -->\n"
#: Per byte, by an H200: 132 processors, 128 lanes, 1.7 GHz, 4.8 TB/s.
INSTRUCTIONS_PER_BYTE = 132 * 128 * 1.7e9 / 4.8e12
#: Limited by what they compute: the error function has no instruction, and softmax takes each
#: exponential twice.
COMPUTING = ("bias-GELU, erf", "bias-GELU's gradient, erf", "masked softmax")


@pytest.fixture(scope="module")
def codes() -> dict[str, Code]:
    build = Path(smdistributed.__file__).parents[2]
    if not _runtime.HAS_CUDA:
        pytest.skip("this build has no GPU code: no nvcc was found when it was configured")
    if not (build / "smp_runtime").exists():
        pytest.skip(f"{build} is no build folder; the kernels' code lies in libraries there")
    if not disassembler().exists():
        pytest.skip(f"no disassembler at {disassembler()}")
    return read_codes(build / "smp_runtime")


def table(codes: dict[str, Code]) -> str:
    rows = [
        "| kernel | bytes | instructions | registers | spills | load |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kernel in KERNELS:
        code = codes[kernel.shown]
        rows.append(
            f"| {kernel.shown} | {kernel.moved} | {code.per_element(kernel):.1f} | "
            f"{code.registers} | {code.spilled} | {code.widest} |"
        )
    return "\n".join(rows) + "\n"


def test_the_page_says_what_was_compiled(codes: dict[str, Code]) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    shown, _, after = rest.partition(END)
    made = table(codes)
    if os.environ.get("SMP_UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")
        return

    assert shown.strip() == made.strip(), (
        "the kernels' machine code is another; SMP_UPDATE_GOLDEN=1 writes the table anew"
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.shown)
def test_a_kernel_waits_for_memory_not_for_itself(kernel: Kernel, codes: dict[str, Code]) -> None:
    code = codes[kernel.shown]

    assert code.spilled == 0
    assert code.widest == 16
    assert code.stored in (None, 16), "a warp's narrow stores go to memory one after the other"
    if kernel.shown not in COMPUTING:
        # A fifth of the time may pass so.
        assert code.per_element(kernel) <= 1.2 * INSTRUCTIONS_PER_BYTE * kernel.moved
