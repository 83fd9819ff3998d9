# SPDX-License-Identifier: Apache-2.0
"""As much of torch as launchers look at."""

from torch.version import __version__ as __version__
