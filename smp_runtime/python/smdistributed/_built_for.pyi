# SPDX-License-Identifier: Apache-2.0
"""What the compiled part of the package was built for; CMake writes it."""

PYTHON: str
TORCH: str
CUDA: str
GLIBC: str
LIBRARY: str
