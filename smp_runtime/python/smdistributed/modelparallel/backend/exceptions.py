# SPDX-License-Identifier: Apache-2.0
"""Errors of the parts below the library. Launchers list the classes of this module by name."""

from __future__ import annotations


class SMPBackendError(RuntimeError):
    """A peer, a device, the network or the operating system failed."""


class SMPConnectionError(SMPBackendError):
    """A rank cannot be reached, or went away."""


class SMPProtocolError(SMPBackendError):
    """A rank said what could not be understood: versions of the library differ, or it has a bug."""
