# SPDX-License-Identifier: Apache-2.0
"""Data parallelism for PyTorch: ``import smdistributed.dataparallel.torch.torch_smddp``."""
