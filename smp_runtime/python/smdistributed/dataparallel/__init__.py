# SPDX-License-Identifier: Apache-2.0
"""Data parallelism as a backend of ``torch.distributed``."""
