# SPDX-License-Identifier: Apache-2.0
"""Connections between ranks, and the messages sent over them."""
