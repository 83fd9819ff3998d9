# SPDX-License-Identifier: Apache-2.0
"""The little of torchnet that MNIST scripts use."""
