# SPDX-License-Identifier: Apache-2.0
"""Puts distributed modules in the place of those that a plan names.

Torch's classes and Hugging Face's can be split without the script's registering them. Transformers
is never imported from here: a model of a class that was not imported cannot exist.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._annotations.constructed_values import forget_constructed
from smdistributed.modelparallel.torch._annotations.model_creation import default_type
from smdistributed.modelparallel.torch._annotations.tensor_registry import (
    Arguments,
    Registration,
    registration_of,
)
from smdistributed.modelparallel.torch._delayed.delayed_parameters import delayed, has_delayed
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._ranks.log import info, warning
from smdistributed.modelparallel.torch._sharding.precision import begins_in_fp16
from smdistributed.modelparallel.torch._tensor.carried_hooks import carry_hooks
from smdistributed.modelparallel.torch._tensor.first_values import (
    agree_on_values,
    origins,
    refuse_unknown,
    take_values,
)
from smdistributed.modelparallel.torch._tensor.plain_model import (
    PlainModel,
    class_name,
    described,
)
from smdistributed.modelparallel.torch._tensor.tensor_plan import (
    Replacement,
    TensorPlan,
    lines,
    plan_tensor_parallelism,
    transformers_left,
)
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError
from smdistributed.modelparallel.torch.nn import DistributedEmbedding, DistributedLinear
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.huggingface.causal_models import (
    CAUSAL_MODELS,
    GPTNEOX_MODELS,
    LLAMA_MODELS,
)
from smdistributed.modelparallel.torch.nn.huggingface.encoders import ENCODERS
from smdistributed.modelparallel.torch.nn.initial_values import drawn_later
from smdistributed.modelparallel.torch.state_mod import state


@dataclass(frozen=True)
class Replaced:
    """A model with distributed modules in it. Names are paths from the root, which is empty."""

    root: nn.Module
    made: dict[str, Registration]
    """Registration by which each module was replaced."""
    known: dict[str, Registration]
    """Registration of each module of a known class, annotated or not."""
    plain: PlainModel
    """The model as it was."""


def replace_annotated(root: nn.Module) -> Replaced:
    """The model with distributed modules where annotations ask for them.

    The root itself may be replaced. Values are those of the modules that are replaced, whatever the
    degree; parameters without any are drawn, see ``first_values``. Where they are delayed they stay
    so. Collective over the tensor-parallel group.

    Raises SMPTensorParallelError, naming modules and numbers, if there are annotated transformers
    and not one of them can be split for its sizes: next to nothing would be split then. So it does,
    naming the parameter, where values would be lost, or would be what memory happened to hold.
    """
    if state.onlooker is not None:
        state.onlooker.wraps(root)
    if state.cfg.fp16_params and not begins_in_fp16():
        warning(
            "fp16_params is ignored: bf16 makes parameters bfloat16, with masters that begin with "
            "all 32 bits; leave fp16_params out"
        )
    degree = ranks.tp_size()
    known = _known(root)
    plan = plan_tensor_parallelism(root, _lookup, degree)
    for line in lines(plan):
        info(line)
    _refuse_heads(plan, degree)
    plain = described(root, {_path(one): one.module for one in plan.replacements})
    made = _made_by_module(root, plan)
    for parent in list(root.modules()):
        for name, child in parent._modules.items():
            if child in made:
                parent._modules[name] = made[child]
    root = made.get(root, root)
    narrow_distributed(root)
    return Replaced(root, _by_name(plan), known, plain)


def narrow_distributed(root: nn.Module) -> None:
    """``fp16_params``: distributed modules are 16-bit; others, and what comes in, are a script's
    business. Those whose parameters have no storage yet stay as they are."""
    if begins_in_fp16():
        for module in root.modules():
            if isinstance(module, DistributedModule) and not has_delayed(module):
                module.half()


def registrations_with(root: nn.Module, degree: int) -> dict[str, Registration]:
    """Registrations by which ``degree`` tensor ranks would replace annotated modules, by name."""
    return _by_name(plan_tensor_parallelism(root, _lookup, degree))


def _by_name(plan: TensorPlan) -> dict[str, Registration]:
    return {_path(one): one.registration for one in plan.replacements}


def _path(one: Replacement) -> str:
    """From the root, which is empty."""
    return "" if one.name == "(root)" else one.name


def _known(root: nn.Module) -> dict[str, Registration]:
    found = ((name, _lookup(module)) for name, module in root.named_modules())
    return {name: registration for name, registration in found if registration is not None}


def _lookup(module: nn.Module) -> Registration | None:
    own = registration_of(module)
    if own is not None or not state.cfg.predefined_hooks:
        return own
    return predefined_registration(module)


def _refuse_heads(plan: TensorPlan, degree: int) -> None:
    left = transformers_left(plan)
    if not left:
        return
    more = f"; so with {len(left) - 1} more" if len(left) > 1 else ""
    raise SMPTensorParallelError(
        f"tensor_parallel_degree is {degree}, and no annotated transformer can be split: "
        f"{left[0].name}: {left[0].reason}{more}; choose a degree that divides, or annotate less"
    )


def _made_by_module(root: nn.Module, plan: TensorPlan) -> dict[nn.Module, nn.Module]:
    if not plan.replacements:
        return {}
    found = origins(root)
    refuse_unknown([(one.name, one.module) for one in plan.replacements], root, found)
    without = agree_on_values(plan.replacements, found)
    if without:
        info(
            f"tensor parallelism: {len(without)} parameters were never initialized; they are drawn "
            "from tensor_parallel_seed"
        )
    made = {one.module: _made(one, without) for one in plan.replacements}
    forget_constructed(root)
    return made


def _made(one: Replacement, without: set[nn.Parameter]) -> nn.Module:
    registration, plain = one.registration, one.module
    target = registration.dist_module
    dtype = next((p.dtype for p in plain.parameters() if p.is_floating_point()), None)
    try:
        with default_type(dtype), delayed() if has_delayed(plain) else contextlib.nullcontext():
            with drawn_later() as draw:
                module = target(*one.args, **one.kwargs)
            take_values(one, module, draw, without, required=bool(state.cfg._match_weights))
    except SMPTensorParallelError as error:
        raise SMPTensorParallelError(f"module {one.name}: {error}") from error
    except Exception as error:
        raise SMPTensorParallelError(
            f"module {one.name} cannot become {target.__name__}: {type(error).__name__}: {error}"
        ) from error
    take_place(one, module)
    return module


def take_place(one: Replacement, module: nn.Module) -> None:
    """Has ``module``, which has its values, behave as the one that it replaces: hooks, mode, frozen
    parameters, what it takes and returns."""
    registration, plain = one.registration, one.module
    carry_hooks(one, module)
    module.train(plain.training)
    for attribute in ("_smp_partition", "config"):  # config: scripts read it off Hugging Face's
        if attribute in plain.__dict__:
            module.__dict__[attribute] = plain.__dict__[attribute]
    _freeze(one, module)
    if registration.forward_hook is not None:
        module.register_forward_pre_hook(
            _arguments_mapped(one.name, registration.forward_hook), with_kwargs=True
        )
    if registration.return_hook is not None:
        module.register_forward_hook(_result_mapped(registration.return_hook))


def _arguments_mapped(name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def mapped(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        result = hook(*args, **kwargs)
        pair = isinstance(result, (tuple, list)) and len(result) == 2
        if not (pair and isinstance(result[0], (tuple, list)) and isinstance(result[1], Mapping)):
            raise SMPTensorParallelError(
                f"module {name}: forward_hook {getattr(hook, '__qualname__', hook)} returned "
                f"{type(result).__name__}; expected (args, kwargs), a tuple and a dict"
            )
        return tuple(result[0]), dict(result[1])

    return mapped


def _result_mapped(hook: Callable[[Any], Any]) -> Callable[..., Any]:
    def mapped(_module: nn.Module, _args: Any, result: Any) -> Any:
        return hook(result)

    return mapped


def _freeze(one: Replacement, module: nn.Module) -> None:
    """Parameters that stand for frozen ones are frozen."""
    plain = dict(one.module.named_parameters(remove_duplicate=False))
    if all(parameter.requires_grad for parameter in plain.values()):
        return
    # Translated as their values are, of which parts may come from one of both kinds.
    trained: Mapping[str, Any] = {
        name: torch.full((), float(parameter.requires_grad)).expand(parameter.shape)
        for name, parameter in plain.items()
    }
    if one.registration.from_plain is not None:
        trained = one.registration.from_plain(trained)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in trained and not trained[name].any():
            parameter.requires_grad_(False)


_HUGGING_FACE = {
    "transformers.models.gpt2.modeling_gpt2": CAUSAL_MODELS,
    "transformers.models.gptj.modeling_gptj": CAUSAL_MODELS,
    "transformers.models.gpt_neo.modeling_gpt_neo": CAUSAL_MODELS,
    "transformers.models.gpt_neox.modeling_gpt_neox": GPTNEOX_MODELS,
    "transformers.models.llama.modeling_llama": LLAMA_MODELS,
    "transformers.models.mistral.modeling_mistral": LLAMA_MODELS,
    "transformers.models.qwen2.modeling_qwen2": LLAMA_MODELS,
    "transformers.models.qwen3.modeling_qwen3": LLAMA_MODELS,
    "transformers.models.gemma.modeling_gemma": LLAMA_MODELS,
    "transformers.models.bert.modeling_bert": ENCODERS,
    "transformers.models.roberta.modeling_roberta": ENCODERS,
}


def predefined_by_name(name: str) -> Registration | None:
    """The built-in registration for a class, of which a file says module and name."""
    for kind, known in ((nn.Linear, _LINEAR), (nn.Embedding, _EMBEDDING)):
        if name == class_name(kind):
            return known
    module, _, kind_name = name.rpartition(".")
    return _HUGGING_FACE.get(module, {}).get(kind_name)


def predefined_registration(module: nn.Module) -> Registration | None:
    """The built-in registration for the class of ``module``, exactly that class."""
    kind = type(module)
    if kind is nn.Linear:
        return _LINEAR
    if kind is nn.Embedding:
        return _EMBEDDING
    known = _HUGGING_FACE.get(kind.__module__, {}).get(kind.__name__)
    # A class that only says it is Hugging Face's is not.
    if getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind:
        return None
    return known


def _linear_arguments(module: Any) -> Arguments:
    return (module.in_features, module.out_features), {"bias": module.bias is not None}


def _embedding_arguments(module: Any) -> Arguments:
    return (module.num_embeddings, module.embedding_dim), {
        "padding_idx": module.padding_idx,
        "max_norm": module.max_norm,
        "norm_type": module.norm_type,
        "scale_grad_by_freq": module.scale_grad_by_freq,
        "sparse": module.sparse,
    }


_LINEAR = Registration(DistributedLinear, arguments_of=_linear_arguments, same_calls=True)
_EMBEDDING = Registration(DistributedEmbedding, arguments_of=_embedding_arguments, same_calls=True)
