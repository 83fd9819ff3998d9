# SPDX-License-Identifier: Apache-2.0
"""What scripts say of modules before these are wrapped, and what is noted as they are made."""
