# SPDX-License-Identifier: Apache-2.0
"""What is said of steps while they run."""
