# SPDX-License-Identifier: Apache-2.0
"""Open successor of SageMaker's distributed training libraries; not made by Amazon."""

import os as _os

from smdistributed import _compatibility

_compatibility.check()

if _os.environ.get("SMP_DEEPSPEED_COMPAT"):
    from smdistributed import _deepspeed_names, _runtime

    if _runtime.runtime_options(dict(_os.environ)).deepspeed_names:
        _deepspeed_names.offer()
