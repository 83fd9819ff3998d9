# SPDX-License-Identifier: Apache-2.0
"""The hooks that a script put on modules which are replaced.

They go over where what they are called with means the same: outputs, inputs and their gradients of
a layer that takes and returns what its counterpart does, and parameters that every rank holds
whole. All others are an error, since they would be lost or see slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis, tp_size
from smdistributed.modelparallel.torch._tensor.tensor_plan import Replacement, hook_name
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError

#: Hooks of modules, by the attributes in which torch keeps them.
_OF_CALLS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_MORE_OF_CALLS = (
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_is_full_backward_hook",
)
_OF_STATE = {
    "_state_dict_hooks": "state-dict hook",
    "_state_dict_pre_hooks": "state-dict pre-hook",
    "_load_state_dict_pre_hooks": "load-state-dict pre-hook",
    "_load_state_dict_post_hooks": "load-state-dict post-hook",
}
_OF_PARAMETERS = {
    "_backward_hooks": "gradient hook",
    "_post_accumulate_grad_hooks": "accumulated-gradient hook",
}
#: Origin of Transformers' own hooks, which collect outputs that split models refuse to give.
_TRANSFORMERS = "transformers.utils."


def carry_hooks(one: Replacement, module: nn.Module) -> None:
    """Gives ``module`` the hooks of the module that it replaces. The script's handles still remove
    those of modules.

    Raises SMPTensorParallelError, naming module and hook, for one that cannot go over.
    """
    if not one.registration.same_calls:
        _refuse_any(one, _OF_CALLS | _OF_STATE)
        _refuse_hooks_of_parameters(one, one.module.named_parameters())
        return
    plain = one.module
    for attribute in (*_OF_CALLS, *_MORE_OF_CALLS):
        setattr(module, attribute, getattr(plain, attribute))
    if tp_size() > 1:
        _refuse_any(one, _OF_STATE)
    else:
        for attribute in _OF_STATE:
            setattr(module, attribute, getattr(plain, attribute))
    entries = dict(module.named_parameters())
    sliced = {name for name, entry in entries.items() if distribution_axis(entry) is not None}
    _refuse_hooks_of_parameters(one, ((n, p) for n, p in plain.named_parameters() if n in sliced))
    for name, parameter in plain.named_parameters():
        for hook in (parameter._backward_hooks or {}).values():
            entries[name].register_hook(hook)
        for hook in (parameter._post_accumulate_grad_hooks or {}).values():
            entries[name].register_post_accumulate_grad_hook(hook)


def _refuse_any(one: Replacement, kinds: dict[str, str]) -> None:
    for prefix, part in one.module.named_modules():
        for attribute, kind in kinds.items():
            for hook in getattr(part, attribute).values():
                if not _is_of_transformers(hook):
                    raise _error(one, prefix, kind, hook)


def _refuse_hooks_of_parameters(
    one: Replacement, parameters: Iterator[tuple[str, nn.Parameter]]
) -> None:
    for name, parameter in parameters:
        for attribute, kind in _OF_PARAMETERS.items():
            for hook in (getattr(parameter, attribute) or {}).values():
                raise _error(one, name, kind, hook)


def _error(one: Replacement, below: str, kind: str, hook: Any) -> SMPTensorParallelError:
    root = "" if one.name == "(root)" else one.name
    where = ".".join(part for part in (root, below) if part) or "(root)"
    target = one.registration.dist_module.__name__
    return SMPTensorParallelError(
        f"{where} has a {kind}, {hook_name(hook)}, and tensor parallelism replaces {one.name} by "
        f"{target}, in which it would see slices or nothing: register it after "
        "smp.DistributedModel, on what is there then, or keep the module whole: "
        "smp.set_tensor_parallelism(module, False)"
    )


def _is_of_transformers(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(_TRANSFORMERS)
