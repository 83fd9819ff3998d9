# SPDX-License-Identifier: Apache-2.0
"""What state of a model and its optimizers there is, and whether saved state fits."""
