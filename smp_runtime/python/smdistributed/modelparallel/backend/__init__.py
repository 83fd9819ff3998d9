# SPDX-License-Identifier: Apache-2.0
"""What the library stands on: connections between ranks and what is said over them."""
