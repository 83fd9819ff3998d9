# SPDX-License-Identifier: Apache-2.0
"""Guards of the training loop: mistakes after which nothing would be learned, or something else."""
