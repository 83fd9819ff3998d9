# SPDX-License-Identifier: Apache-2.0
"""Versions that the compiled part of the package was built for. CMake writes the module."""

PYTHON: str
TORCH: str
CUDA: str
GLIBC: str
LIBRARY: str
