# SPDX-License-Identifier: Apache-2.0
"""Not offered: importing this raises."""

from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedImportError

raise SMPUnsupportedImportError(
    "smdistributed.modelparallel.tensorflow is not offered: this library is for PyTorch only; "
    "use smdistributed.modelparallel.torch"
)
