# SPDX-License-Identifier: Apache-2.0
"""State of a model and its optimizers, and checks that saved state fits."""
