# SPDX-License-Identifier: Apache-2.0
"""Models created without storage, whose values are made when FSDP wraps them, a unit at a time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker.logger import get_logger
from smdistributed.sagemaker.recomputed_buffers import recompute_buffers
from smdistributed.sagemaker.utils.module_utils import empty_parameter, move_buffers_to_device

Initialize = Callable[[nn.Module], None]
#: Projections that Transformers gives a smaller spread once the whole model is there, by its type.
_SCALED = {"gpt2": "c_proj"}


class DelayedParamIniter:
    """Gives FSDP the functions by which it makes parameters of a model on the ``meta`` device.

    Each module gets its values as in its own creation: by ``init_method_using_config``, by what its
    Hugging Face model initialises with, by ``reset_parameters``, or, if it has nothing but vectors
    of one length, which is all that creating it takes, as another one like it. Parameters that
    modules share stay shared. Buffers that have values keep them; others are computed anew.

    >>> model = nn.Linear(2, 2, device="meta")
    >>> initer = DelayedParamIniter(model)
    >>> with initer.validate_params_and_buffers_inited():
    ...     initer.get_param_init_fn()(model)
    >>> initer.count_num_params(), model.weight.device.type
    (6, 'cpu')

    Args:
        model: as it was created inside ``init_empty_weights()`` or on the ``meta`` device.
        init_method_using_config: initialises the parameters that a module has itself.
        verbose: log each module that is initialised.
    """

    def __init__(
        self,
        model: nn.Module,
        init_method_using_config: Initialize | None = None,
        verbose: bool = False,
    ) -> None:
        self._model = model
        self._init_method = init_method_using_config
        self._verbose = verbose
        # Inside init_empty_weights() each assignment makes a parameter of its own.
        tie: Any = getattr(model, "tie_weights", None)
        if tie is not None:
            tie()
        self._num_params = sum(one.numel() for one in model.parameters())
        self._names = {module: name for name, module in model.named_modules()}
        self._shared = _shared(model)
        self._made: dict[nn.Parameter, nn.Parameter] = {}
        self._unset: dict[str, None] = {}  # in order

    def count_num_params(self) -> int:
        """Elements of all parameters; shared ones count once."""
        return self._num_params

    def get_param_init_fn(self) -> Initialize:
        """FSDP's ``param_init_fn``: gives a module's own parameters and buffers storage and
        values."""
        return self._init_module

    def get_post_param_init_fn(self) -> Initialize:
        """FSDP's ``post_param_init_fn``: moves a module's own buffers to where its values are
        computed with."""
        return lambda module: move_buffers_to_device(module, _device())

    @contextmanager
    def validate_params_and_buffers_inited(self, enabled: bool = True) -> Iterator[None]:
        """Raises SMPValidationError at the end of the block, if a parameter or buffer of the model
        has no storage or values that nothing has set. What is not set is NaN until it is."""
        yield
        if not enabled:
            return
        own = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        unset = [*self._unset, *(name for name, value in own.items() if value.is_meta)]
        if unset:
            more = f" and {len(unset) - 5} more" if len(unset) > 5 else ""
            raise SMPValidationError(
                f"nothing has initialised {', '.join(unset[:5])}{more}; give DelayedParamIniter an "
                "init_method_using_config that does, or create the model with storage"
            )

    def _init_module(self, module: nn.Module) -> None:
        delayed = {
            name for name, one in module._parameters.items() if one is not None and one.is_meta
        }
        with torch.no_grad():
            fresh = [name for name in sorted(delayed) if self._give_storage(module, name)]
            if fresh:
                self._initialize(module)
            unset = recompute_buffers(module, self._config(), _device())
        unset += [name for name in fresh if module._parameters[name].isnan().any()]  # type: ignore[union-attr]
        where = self._names.get(module, type(module).__name__)
        self._unset |= dict.fromkeys(f"{where}.{name}".lstrip(".") for name in unset)
        if self._verbose and delayed:
            get_logger().info(
                "initialised %s of %s", ", ".join(sorted(delayed)), where or "the model"
            )

    def _give_storage(self, module: nn.Module, name: str) -> bool:
        """False if another module has made the parameter already."""
        delayed = module._parameters[name]
        assert delayed is not None
        known = self._made.get(delayed)
        if known is not None:
            module._parameters[name] = known
            return False
        made = empty_parameter(delayed, _device())
        if made.is_floating_point():
            made.fill_(torch.nan)
        module._parameters[name] = made
        if delayed in self._shared:
            self._made[delayed] = made
        return True

    def _initialize(self, module: nn.Module) -> None:
        of_model = getattr(self._model, "_init_weights", None)
        if self._init_method is not None:
            self._init_method(module)
            return
        if of_model is not None:
            of_model(module)
            self._scale(module)
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None and (of_model is None or _has_nan(module)):
            reset()
        if _has_nan(module):
            _take_created_values(module)

    def _scale(self, module: nn.Module) -> None:
        config = self._config()
        suffix = _SCALED.get(getattr(config, "model_type", ""))
        if suffix is not None and self._names.get(module, "").endswith(suffix):
            deviation = config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
            nn.init.normal_(module.weight, std=deviation)  # type: ignore[arg-type]

    def _config(self) -> Any:
        return getattr(self._model, "config", None)


def _has_nan(module: nn.Module) -> bool:
    own = [one for one in module._parameters.values() if one is not None]
    return any(one.is_floating_point() and bool(one.isnan().any()) for one in own)


def _take_created_values(module: nn.Module) -> None:
    """Sets what is not set as another module of the type is created with, where all that creating
    one takes is the length of its vectors: norms of Transformers 4 say it nowhere else."""
    own = {name: one for name, one in module._parameters.items() if one is not None}
    takes = list(inspect.signature(type(module).__init__).parameters.values())[1:]  # without self
    needed = [one for one in takes if one.default is one.empty]
    if len({one.shape for one in own.values()}) != 1 or len(needed) != 1:
        return
    if needed[0].kind is not needed[0].POSITIONAL_OR_KEYWORD or next(iter(own.values())).dim() != 1:
        return
    with _nan_where_nothing_is_set(), torch.device("cpu"):
        created = type(module)(next(iter(own.values())).numel())
    for name, one in own.items():
        value = created._parameters.get(name)
        if one.isnan().any() and value is not None and value.shape == one.shape:
            one.copy_(value)


@contextmanager
def _nan_where_nothing_is_set() -> Iterator[None]:
    """Inside, memory of new tensors is not what it happens to be."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)


def _shared(model: nn.Module) -> set[nn.Parameter]:
    seen: set[nn.Parameter] = set()
    shared: set[nn.Parameter] = set()
    for _, parameter in model.named_parameters(remove_duplicate=False):
        (shared if parameter in seen else seen).add(parameter)
    return shared


def _device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
