# SPDX-License-Identifier: Apache-2.0
"""Model parallelism. The library is ``smdistributed.modelparallel.torch``."""

# Callers compare with 1.10 and 1.15: a local suffix sorts after both, a pre-release would not.
__version__ = "1.15.0+open.1"
