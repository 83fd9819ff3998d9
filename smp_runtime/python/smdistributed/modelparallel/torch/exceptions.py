# SPDX-License-Identifier: Apache-2.0
"""Errors of the library. Launchers list the classes of this module by name.

>>> issubclass(SMPConfigError, ValueError) and issubclass(SMPConfigError, SMPError)
True
"""

from __future__ import annotations


class SMPError(RuntimeError):
    """Base of the library's errors. The text says what was found, expected and to be done."""


class SMPNotInitializedError(SMPError):
    """Something was used before ``smp.init()``."""


class SMPConfigError(SMPError, ValueError):
    """The parallel settings ask for something impossible."""


class SMPValidationError(SMPError, ValueError):
    """An argument of a call does not fit."""


class SMPUnsupportedError(SMPError):
    """A feature that this version does not have."""


class SMPUnsupportedImportError(SMPUnsupportedError, ImportError):
    """A module of a feature that this version does not have."""


class SMPPartitionError(SMPError):
    """Modules cannot be placed as asked."""


class SMPStepError(SMPError):
    """A step function, or what it was given, does not fit."""


class SMPSelfCheckError(SMPError):
    """``SMP_SELF_CHECK`` finds that the job computes something else than plain PyTorch."""


class SMPCheckpointError(SMPError):
    """A checkpoint cannot be written or read."""


class SMPCommTimeoutError(SMPError, TimeoutError):
    """Ranks that were waited for did not come; the text names them."""


class SMPMismatchError(SMPError):
    """Ranks are in calls that wait for each other; the text names the calls and their lines."""


class SMPTensorParallelError(SMPError):
    """A module cannot be split over a tensor-parallel group."""


class SMPDeviceError(SMPError):
    """A device is missing or of the wrong kind."""


class SMPInternalError(SMPError):
    """A bug of the library; the text asks for a report."""
