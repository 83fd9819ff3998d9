# SPDX-License-Identifier: Apache-2.0
"""Machine code of the kernels, read from the built libraries.

The disassembler comes with torch's Triton, so this works where no toolkit and no GPU is.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURE = "sm_90"


@dataclass(frozen=True)
class Kernel:
    """A row of the table. ``elements`` is what a thread does in a round of its loops, or in all
    without one, and ``moved`` what must travel for each of them, in bytes."""

    shown: str
    library: str
    pattern: str  # pattern of its name with types, without spaces
    elements: int
    moved: int


_BF16 = "__nv_bfloat16"
KERNELS = (
    Kernel("bias-GELU, tanh", "tensor_parallel", rf"bias_gelu<.*GeluKind\)1,8,{_BF16}>", 32, 4),
    Kernel("bias-GELU, erf", "tensor_parallel", rf"bias_gelu<.*GeluKind\)0,8,{_BF16}>", 32, 4),
    Kernel(
        "bias-GELU's gradient, tanh", "tensor_parallel", rf"slopes<.*GeluKind\)1,8,{_BF16}>", 16, 6
    ),
    Kernel(
        "bias-GELU's gradient, erf", "tensor_parallel", rf"slopes<.*GeluKind\)0,8,{_BF16}>", 16, 6
    ),
    Kernel("layer norm: moments", "tensor_parallel", rf"moments<8,{_BF16}>", 32, 2),
    Kernel("layer norm: result", "tensor_parallel", rf"normalise<8,{_BF16}>", 32, 4),
    Kernel("layer norm's gradient: sums", "tensor_parallel", rf"slope_sums<8,{_BF16}>", 32, 4),
    Kernel("layer norm's gradient: result", "tensor_parallel", rf":slopes<8,{_BF16}>", 16, 6),
    Kernel("masked softmax", "tensor_parallel", rf"softmax<8,{_BF16}>", 32, 4),
    Kernel("vocabulary loss", "tensor_parallel", rf"loss_parts<8,{_BF16}>", 32, 2),
    Kernel("vocabulary loss's gradient", "tensor_parallel", rf"loss_slopes<8,{_BF16}>", 32, 4),
    Kernel("Adam, fp32", "optimizer", r"adam<float>", 4, 28),
    Kernel("squares, fp32", "optimizer", r"squares<float>", 16, 4),
    Kernel("flatten, bf16 to fp32", "sharding", rf"flatten<float,{_BF16}>", 16, 6),
)


@dataclass(frozen=True)
class Code:
    """Machine code of one kernel. ``instructions`` are those for its ``elements``."""

    instructions: int
    registers: int
    spilled: int  # bytes of local memory
    widest: int  # bytes of the widest load from the device's memory
    stored: int | None  # bytes of the narrowest store there in these loops, if they have one

    def per_element(self, kernel: Kernel) -> float:
        return self.instructions / kernel.elements


def disassembler() -> Path:
    spec = importlib.util.find_spec("triton")
    assert spec is not None, "torch for CUDA comes with Triton"
    assert spec.origin is not None
    return Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def read_codes(libraries: Path) -> dict[str, Code]:
    """Codes of all kernels by their names in the table. ``libraries`` holds the folders of the
    build's smp_runtime. Raises LookupError for a kernel that is not there, or there twice."""
    found: dict[str, Code] = {}
    for library in sorted({kernel.library for kernel in KERNELS}):
        archive = libraries / library / f"libsmp_{library}.a"
        functions = _functions(archive)
        usage = _usage(archive)
        for kernel in KERNELS:
            if kernel.library != library:
                continue
            names = [
                name
                for name, readable in _readable(list(functions)).items()
                if re.search(rf"(?<!\w){kernel.pattern}".replace("(?<!\\w):", ":"), readable)
            ]
            if len(names) != 1:
                raise LookupError(f"{archive}: {len(names)} kernels are {kernel.pattern}")
            registers, spilled = usage[names[0]]
            found[kernel.shown] = _code(functions[names[0]], registers, spilled)
    return found


def _dump(archive: Path, what: str) -> str:
    command = [disassembler(), "-arch", ARCHITECTURE, what, archive]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def _readable(names: list[str]) -> dict[str, str]:
    """By mangled name, without spaces."""
    done = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True, timeout=60
    )
    return {
        name: line.replace(" ", "")
        for name, line in zip(names, done.stdout.split("\n"), strict=False)
    }


def _functions(archive: Path) -> dict[str, list[tuple[int, str]]]:
    """Address and text of each instruction, by function."""
    functions = {}
    for part in re.split(r"\n\s*Function : ", _dump(archive, "-sass"))[1:]:
        name, _, body = part.partition("\n")
        found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", body)
        functions[name.strip()] = [(int(place, 16), text) for place, text in found]
    return functions


def _usage(archive: Path) -> dict[str, tuple[int, int]]:
    """Registers and bytes of local memory, by function."""
    text = _dump(archive, "--dump-resource-usage")
    found = re.findall(r"Function (\S+):\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    return {name: (int(reg), int(stack) + int(local)) for name, reg, stack, local in found}


def _code(instructions: list[tuple[int, str]], registers: int, spilled: int) -> Code:
    real = [(place, text) for place, text in instructions if not text.startswith("NOP")]
    passes = _passes(real)
    loads = [bits for _, text in real for bits in _widths(text)]
    stores = [bits // 8 for _, text in passes for bits in _widths(text, "STG")]
    widest = max(loads, default=0) // 8
    return Code(len(passes), registers, spilled, widest, min(stores, default=None))


def _widths(text: str, kind: str = "LDG") -> list[int]:
    """In bits."""
    found = re.search(rf"\b{kind}\.E(?:\.(U8|S8|U16|S16|64|128))?", text)
    return [] if found is None else [int((found.group(1) or "32").lstrip("US"))]


def _passes(instructions: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The loops that read widely, each a pass over a row; without one the loop that reads most;
    without that, all of it."""
    loops = []
    for place, text in instructions:
        target = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)
        if target and int(target.group(1), 16) < place:
            begin = int(target.group(1), 16)
            loops.append([one for one in instructions if begin <= one[0] <= place])
    wide = [body for body in loops if any(128 in _widths(text) for _, text in body)]
    if wide:
        return [one for body in wide for one in body]
    reading = [body for body in loops if any(_widths(text) for _, text in body)]
    return max(reading, key=len, default=instructions)
