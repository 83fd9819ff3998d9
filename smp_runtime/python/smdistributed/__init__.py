# SPDX-License-Identifier: Apache-2.0
"""Open successor of SageMaker's distributed training libraries; not made by Amazon."""

import os as _os

from smdistributed import _variables

if _variables.read("SMP_DEEPSPEED_COMPAT", _os.environ):
    from smdistributed import _deepspeed_names

    _deepspeed_names.offer()
