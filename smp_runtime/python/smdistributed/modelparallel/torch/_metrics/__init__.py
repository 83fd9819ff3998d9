# SPDX-License-Identifier: Apache-2.0
"""Numbers of steps: time, memory, operations, the loss, the live line."""
