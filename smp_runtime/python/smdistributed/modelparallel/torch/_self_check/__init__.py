# SPDX-License-Identifier: Apache-2.0
"""``SMP_SELF_CHECK``: steps computed once more in plain PyTorch, and compared."""
