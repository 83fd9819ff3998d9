# SPDX-License-Identifier: Apache-2.0
"""Models that ``torch.compile`` was applied to, as they were before.

A compiled graph knows nothing of calls to other ranks, and its wrapper renames all parameters.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._session.log import warning

_INSIDE = "_orig_mod"  # the name of the wrapped module in its wrapper
_IN_PLACE = "_compiled_call_impl"  # the graph of Module.compile()
_PREFIX = "_smp_"  # attributes of our annotations


def without_compilation(root: nn.Module) -> nn.Module:
    """The model without compiled modules; warns if there were some, naming them.

    It is changed in place. Annotations on a wrapper go to the module inside.
    """
    compiled: set[str] = set()
    for name, module in list(root.named_modules()):
        in_place = vars(module).pop(_IN_PLACE, None) is not None
        if in_place or _is_wrapper(module):
            compiled.add(".".join(part for part in name.split(".") if part != _INSIDE))
        if not _is_wrapper(module):
            for key, child in module._modules.items():
                module._modules[key] = _inside(child)
    if compiled:
        names = ", ".join(name or "(root)" for name in sorted(compiled))
        warning(f"smp.DistributedModel undoes torch.compile, and runs as they are: {names}")
    plain: nn.Module = _inside(root)
    return plain


def _is_wrapper(module: Any) -> bool:
    # Importing torch._dynamo takes seconds, and nothing is compiled where nobody did.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def _inside(module: Any) -> Any:
    while _is_wrapper(module):
        annotations = {
            name: value for name, value in vars(module).items() if name.startswith(_PREFIX)
        }
        module = getattr(module, _INSIDE)
        vars(module).update(annotations)
    return module
