# SPDX-License-Identifier: Apache-2.0
"""The layer of experts, which is not there."""

from smdistributed.sagemaker.absent_modules import AbsentModule


class MoELayer(AbsentModule):
    """No model has one. Raises NotImplementedError when it is made."""
