# SPDX-License-Identifier: Apache-2.0
"""Layers of ``torch.sagemaker.transform``, which are not there. A model that is not transformed has
none of them: scripts that wrap or checkpoint these classes find nothing to wrap."""

from smdistributed.sagemaker.absent_modules import AbsentModule


class TransformerLMHead(AbsentModule):
    """Raises NotImplementedError when it is made."""


class TransformerLayer(AbsentModule):
    """Raises NotImplementedError when it is made."""


class TETransformerLayer(AbsentModule):
    """Raises NotImplementedError when it is made."""
