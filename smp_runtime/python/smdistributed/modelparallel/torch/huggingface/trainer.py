# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer for models that lie on several ranks."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
import transformers
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from smdistributed.modelparallel.torch._annotations.tensor_annotations import (
    annotation_of,
    set_tensor_parallelism,
)
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import agreement
from smdistributed.modelparallel.torch._metrics.reports import progress
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._ranks.log import info
from smdistributed.modelparallel.torch._recompute.activation_checkpointing import (
    set_activation_checkpointing,
)
from smdistributed.modelparallel.torch._state.model_names import tied_names
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.modelparallel.torch.huggingface.accelerators import (
    adapt_accelerator,
    begin_alone,
    mean_over_replicas,
    switch_off_own_calls,
)
from smdistributed.modelparallel.torch.huggingface.trainer_checkpoints import TrainerCheckpoints
from smdistributed.modelparallel.torch.huggingface.trainer_steps import EvaluatedRows, TrainerSteps
from smdistributed.modelparallel.torch.huggingface.training_arguments import (
    MIXIN,
    adapt_arguments,
    takes_checkpointing,
)
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.nn.lm_head import DistributedTransformerLMHead
from smdistributed.modelparallel.torch.nn.transformer_layer import DistributedTransformerLayer
from smdistributed.modelparallel.torch.state_mod import holding, state

switch_off_own_calls()

# Methods that a script's own class may extend, but not replace: they hold the step.
_STEPS = ("training_step", "prediction_step")


class TrainerOverrides(MIXIN):  # type: ignore[misc]
    """The Trainer's methods that know of ranks; ``super()`` is the Trainer's own."""

    model: Any
    model_wrapped: Any

    full_checkpoints = True
    """Checkpoints while training hold the whole model beside its parts."""
    _steps: TrainerSteps  # with the wrapped model
    _checkpoints: TrainerCheckpoints

    def create_accelerator_and_postprocess(self) -> None:
        _refuse_steps(type(self))
        adapt_arguments(self.args)
        begin_alone(self.args.device)
        super().create_accelerator_and_postprocess()
        adapt_accelerator(self.accelerator)
        self.gather_function = self.accelerator.gather_for_metrics

    def is_world_process_zero(self) -> bool:
        return ranks.rank() == 0

    def is_local_process_zero(self) -> bool:
        return ranks.local_rank() == 0

    # --- Model and optimizer ---

    def distributed_model(self) -> DistributedModel:
        """The wrapped model, which the first call makes. Collective."""
        if not isinstance(self.model_wrapped, DistributedModel):
            self.model_wrapped = self._made()
        return self.model_wrapped

    def _made(self) -> DistributedModel:
        plain = self.model
        if hasattr(plain, "config"):
            plain.config.use_cache = False  # keys and values, which nothing reads in training
        recomputes, tied = takes_checkpointing(self.args), tied_names(plain)
        annotated = any(annotation_of(one, None) is not None for one in plain.modules())
        if ranks.tp_size() > 1 and not annotated:
            set_tensor_parallelism(plain)
        with holding(state.cfg, _match_weights=True):
            model = DistributedModel(
                plain, backward_passes_per_step=self.args.gradient_accumulation_steps
            )
        module = model.get_module()
        if type(module) is not type(plain) and not isinstance(module, DistributedTransformerLMHead):
            self.model_accepts_loss_kwargs = False  # a class of the script's
        if recomputes:
            _recompute_layers(module)
        if state.cfg.sharded_data_parallel_degree > 1 and self.args.max_grad_norm:
            state.cfg.sdp_gradient_clipping = 0.0
            info(f"gradients are clipped to max_grad_norm={self.args.max_grad_norm} by the Trainer")
        self._mixed_mesh_grads = False  # else it looks for DTensors, at gradients that masters have
        self._checkpoints = TrainerCheckpoints(model, tied)
        self._steps = TrainerSteps(self)
        return model

    def _wrap_model(self, model: Any, training: bool = True, dataloader: Any = None) -> Any:
        return self.distributed_model()

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Makes the optimizer of the wrapped model's parameters; the accelerator wraps it."""
        module = self.distributed_model().get_module()
        given = self.optimizer
        if given is None:
            with holding(self, model=module):
                return super().create_optimizer(*args, **kwargs)
        _check_parameters(given, module)
        return super().create_optimizer(*args, **kwargs)

    # --- Steps ---

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        inputs = self._prepare_inputs(inputs)
        model.replicas.due = bool(self.accelerator.gradient_state.sync_gradients)
        items = num_items_in_batch
        if items is not None:  # the number in all replicas, whose mean the losses' sums are to have
            items = mean_over_replicas(torch.as_tensor(items, device=self.args.device).double())
        loss = self._steps.train(model, inputs, items)
        return mean_over_replicas(loss.to(self.args.device))

    def prediction_step(
        self,
        model: Any,
        inputs: Any,
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        given = [inputs.get(name) is not None for name in self.label_names]
        labelled = bool(given) and all(given)
        returns_loss = inputs.get("return_loss")
        if returns_loss is None:
            returns_loss = self.can_return_loss
        with_loss = labelled or (not self.label_names and bool(returns_loss))
        inputs = self._prepare_inputs(inputs)
        progress_of = self.accelerator.gradient_state
        rows = EvaluatedRows(
            inputs, is_last=progress_of.end_of_dataloader, remainder=progress_of.remainder
        )
        if ignore_keys is None:
            config = getattr(self.model, "config", None)
            ignore_keys = getattr(config, "keys_to_ignore_at_inference", ["past_key_values"])
        labels = None
        if with_loss:
            labels = tuple(_detached(inputs.get(name)) for name in self.label_names)
            labels = labels[0] if len(labels) == 1 else labels
        items = None
        if with_loss:
            items = self._get_num_items_in_batch([rows.counted(rows.of(inputs))], self.args.device)
        divisor = None if items is None else max(items, torch.ones_like(items))
        loss, outputs = self._steps.predict(
            model, rows.of(inputs), divisor, ignore_keys or [], with_loss
        )
        outputs = rows.filled_up(outputs)
        if loss is not None:
            loss = rows.mean_loss(loss, items)
        if prediction_loss_only:
            return loss, None, None
        if isinstance(outputs, tuple) and len(outputs) == 1:
            outputs = outputs[0]
        return loss, outputs, labels

    # --- Checkpoints ---

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Writes the whole model, as ``from_pretrained`` reads it. All ranks call it."""
        self.distributed_model()
        if _internal_call and not self.full_checkpoints:
            comm.barrier()
            return
        entries = self._checkpoints.whole()
        with agreement("SMPTrainer.save_model"):
            if self.args.should_save:
                # By the plain model, which knows how it is saved, whatever stands in its place.
                self._save(output_dir or self.args.output_dir, state_dict=entries)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        self._checkpoints.save_parts(output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), f"{output_dir}/scheduler.pt")

    def _save_rng_state(self, output_dir: str) -> None:
        with self.args.each_rank_by_itself():
            super()._save_rng_state(output_dir)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with self.args.each_rank_by_itself():
            super()._load_rng_state(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.distributed_model()
        self._checkpoints.load_model(resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            self._checkpoints.load_training(checkpoint, self.lr_scheduler)

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(self.state.best_model_checkpoint)


class _Progress(transformers.TrainerCallback):  # type: ignore[misc]
    """Tells the live line how many steps there will be."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        left = (state.max_steps - state.global_step) * args.gradient_accumulation_steps
        if left > 0:
            progress(math.ceil(left))


class SMPTrainer(TrainerOverrides, transformers.Trainer):  # type: ignore[misc]
    """``transformers.Trainer`` on the library: pipeline, tensor and sharded data parallelism.

    Use it, or derive from it, where a script has ``transformers.Trainer``. It takes the Trainer's
    arguments; ``per_device_train_batch_size`` is the batch of each replica of the model, which is
    cut into ``microbatches``. Call ``smp.init()`` before. Training, evaluation and prediction,
    accumulation and clipping of gradients, saving and resuming are collective: all ranks make the
    same calls. Losses are those of one process with the same global batch.

    The model is wrapped in ``smp.DistributedModel`` by the first call that needs it. With
    ``tensor_parallel_degree`` it is annotated as a whole, unless the script annotated modules, and
    keeps its weights. Set the class attribute ``full_checkpoints`` to False for checkpoints that
    hold the model in parts only.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPUnsupportedError: arguments for what does not go with the library, named.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        state.require_initialized("SMPTrainer")
        super().__init__(*args, **kwargs)
        self.add_callback(_Progress)


def adapt_trainer(trainer: Any) -> Any:
    """Makes a script's own Trainer one of the library, where it can, and returns it.

    Args:
        trainer: ``transformers.Trainer``, a class derived from it, or an object of one, before it
            trains or evaluates. A derived class, and all objects of it, are changed in place: it
            derives from ``SMPTrainer`` from now on. Of ``transformers.Trainer`` itself use what is
            returned.

    Raises:
        SMPUnsupportedError: the class replaces ``training_step`` or ``prediction_step`` without
            calling the Trainer's, or has arguments for what does not go with the library.
        SMPValidationError: something else was given.
    """
    kind = trainer if isinstance(trainer, type) else type(trainer)
    if not issubclass(kind, transformers.Trainer):
        raise SMPValidationError(
            f"adapt_trainer got {trainer!r}; expected transformers.Trainer, a class derived from "
            "it, or an object of one"
        )
    adapted = _adapted(kind)
    if isinstance(trainer, type):
        return adapted
    state.require_initialized("adapt_trainer")
    trainer.__class__ = adapted
    trainer.create_accelerator_and_postprocess()
    trainer.place_model_on_device = False
    trainer.add_callback(_Progress)
    return trainer


def _adapted(kind: type) -> type:
    if issubclass(kind, SMPTrainer):
        return kind
    if kind is transformers.Trainer:
        return SMPTrainer
    _refuse_steps(kind)
    for one in kind.__mro__:
        if transformers.Trainer in one.__bases__:
            one.__bases__ = tuple(
                SMPTrainer if base is transformers.Trainer else base for base in one.__bases__
            )
    return kind


def _refuse_steps(kind: type) -> None:
    """Raises SMPUnsupportedError for a class that runs forward or backward outside of a step."""
    for name in _STEPS:
        if _replaces(kind, name):
            raise SMPUnsupportedError(
                f"{kind.__name__} replaces the Trainer's {name}, which runs the batch in "
                "microbatches on the ranks of the pipeline; compute the loss in compute_loss, or "
                f"call super().{name}(...)"
            )


def _replaces(kind: type, name: str) -> bool:
    """True if a script's class has a method of its own that does not call the Trainer's."""
    for one in kind.__mro__:
        if one.__module__.startswith(("transformers.", str(__package__))):
            return False
        method = vars(one).get(name)
        if inspect.isfunction(method):
            return "super" not in method.__code__.co_names
    return False


def _recompute_layers(module: nn.Module) -> None:
    for one in module.modules():
        if isinstance(one, (GradientCheckpointingLayer, DistributedTransformerLayer)):
            set_activation_checkpointing(one)


def _check_parameters(optimizer: Any, module: nn.Module) -> None:
    own = set(module.parameters())
    given = {p for group in optimizer.param_groups for p in group["params"]}
    if not given <= own:
        raise SMPValidationError(
            f"SMPTrainer got an optimizer with {len(given - own)} parameters that are not the "
            "wrapped model's, for tensor parallelism replaced modules; leave out optimizers=, or "
            "make it in create_optimizer"
        )


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
