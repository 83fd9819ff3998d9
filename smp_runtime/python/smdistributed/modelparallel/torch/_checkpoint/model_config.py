# SPDX-License-Identifier: Apache-2.0
"""``config.json`` of a model of Transformers beside a checkpoint: what the model was before modules
were replaced, and whether the checkpoint has its entries, all of them and no others."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._annotations.tensor_registry import Registration
from smdistributed.modelparallel.torch._checkpoint.plain_values import PlainValues
from smdistributed.modelparallel.torch._files.disk import explained
from smdistributed.modelparallel.torch._tensor.tensor_replacement import predefined_by_name
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

CONFIG = "config.json"
_FURTHER = "generation_config.json"
_AUTOMATIC = ("CausalLM", "MaskedLM", "SequenceClassification", "TokenClassification",
              "QuestionAnswering", "Seq2SeqLM")  # fmt: skip


class ModelConfig:
    """The config in ``folder``, or in the file ``folder``.

    Raises SMPCheckpointError for a file that is no config of Transformers.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder if folder.is_file() else folder / CONFIG
        try:
            self._content = json.loads(self.path.read_text(encoding="utf-8"))
            self._type = str(self._content.get("model_type", ""))
            self._architectures = list(self._content.get("architectures") or [])
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            raise SMPCheckpointError(f"{self.path} is no config of a model: {error!r}") from error

    def write(self, folder: Path, dtype: torch.dtype | None) -> None:
        """Copies it into ``folder``, with the file of generation beside it. It then says that
        values are of ``dtype``: ``from_pretrained`` makes them what it says."""
        known = {name: str(dtype).removeprefix("torch.")
                 for name in ("dtype", "torch_dtype")
                 if dtype is not None and self._content.get(name)}  # fmt: skip
        text = json.dumps(self._content | known, indent=2, sort_keys=True) + "\n"
        _runtime.write_file(folder / CONFIG, text)
        further = self.path.with_name(_FURTHER)
        if further.is_file():
            with explained(f"cannot copy {further} into {folder}"):
                shutil.copyfile(further, folder / _FURTHER)

    def registration(self) -> Registration:
        """That by which tensor parallelism replaces the whole model.

        Raises SMPCheckpointError for a model that it does not replace.
        """
        module = f"transformers.models.{self._type}.modeling_{self._type}"
        for kind in self._architectures or self._causal_class():
            found = predefined_by_name(f"{module}.{kind}")
            if found is not None and found.to_plain is not None:
                return found
        raise SMPCheckpointError(
            f"{self.path} is of a {', '.join(self._architectures) or self._type or 'model'}, "
            "which tensor parallelism does not replace as a whole, and the checkpoint has entries "
            "of a model that it did replace; give the config.json of the model that was trained"
        )

    def classes(self) -> list[Any]:
        """The class of such configs, if it is in Transformers: scripts of v1 put one beside other
        content of theirs."""
        config = self._read(_imported("transformers"))
        return [] if config is None else [type(config)]

    def _read(self, transformers: Any) -> Any:
        """It as Transformers reads it; None for one of a class that is not there, or is older or
        newer than the file."""
        try:
            return transformers.AutoConfig.from_pretrained(str(self.path))
        except Exception:
            return None

    def _causal_class(self) -> list[str]:
        auto = _imported("transformers.models.auto.modeling_auto")
        known = getattr(auto, "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", {})
        return [known[self._type]] if self._type in known else []

    def written(self, values: PlainValues) -> tuple[list[str], str]:
        """The names of ``values`` that files are to have, tied ones once, and what is to be said of
        names that were not compared.

        Raises SMPCheckpointError for entries that the model does not have, that it has and
        ``values`` do not, and of other shapes.
        """
        transformers: Any = _imported("transformers")
        if transformers is None:
            return list(values.entries), (
                f"; its names were not compared with {CONFIG}, since Transformers is not installed"
            )
        reasons = []
        for kind, model in self._models(transformers):
            comparison = _Comparison(model, values)
            if comparison.difference is None:
                return comparison.names(values, f"{kind} of {self.path}"), ""
            reasons.append((kind, comparison.difference))
        if not reasons:
            return list(values.entries), (
                f"; its names were not compared with {CONFIG}, of a model that Transformers "
                f"{transformers.__version__} does not have"
            )
        kind, difference = reasons[0]
        raise SMPCheckpointError(
            f"{self.path} is of a {kind}, and the checkpoint is not: {difference}; give the "
            "config.json of the model that was trained"
        )

    def _models(self, transformers: Any) -> Iterator[tuple[str, Any]]:
        """Classes that may have written the checkpoint, each with a model without storage."""
        config = self._read(transformers)
        if config is None:
            return
        named = [getattr(transformers, name, None) for name in self._architectures]
        automatic = [getattr(transformers, f"AutoModelFor{task}", None) for task in _AUTOMATIC]
        mapped = [one._model_mapping.get(type(config), None) for one in automatic if one]
        base = transformers.AutoModel._model_mapping.get(type(config), None)
        for kind in dict.fromkeys([*named, *mapped, base]):
            if not isinstance(kind, type):
                continue
            try:
                with torch.device("meta"):
                    model: Any = kind(config)
            except Exception:  # of settings that this machine does not have what is needed for
                continue
            model.tie_weights()
            yield kind.__name__, model


class _Comparison:
    """What a model of Transformers has, and what there is."""

    def __init__(self, model: Any, values: PlainValues) -> None:
        self._state: Mapping[str, Any] = model.state_dict(keep_vars=True)
        entries = values.entries
        there = {*entries, *values.tied}
        ignored = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
        unknown = [name for name in entries if name not in self._state
                   and not any(re.search(pattern, name) for pattern in ignored)]  # fmt: skip
        absent = [names[0] for names in self._tied() if there.isdisjoint(names)]
        other = [name for name in entries if name in self._state
                 and entries[name].like.shape != self._state[name].shape]  # fmt: skip
        self.difference: str | None = None
        if absent:
            self.difference = f"it lacks {_told(absent)}"
        elif unknown:
            self.difference = f"it has {_told(unknown)}"
        elif other:
            self.difference = (
                f"{other[0]} has shape {tuple(entries[other[0]].like.shape)}; expected "
                f"{tuple(self._state[other[0]].shape)}"
            )

    def _tied(self) -> Iterable[list[str]]:
        """The names of each parameter and buffer."""
        by_value: dict[int, list[str]] = {}
        for name, value in self._state.items():
            by_value.setdefault(id(value), []).append(name)
        return by_value.values()

    def names(self, values: PlainValues, what: str) -> list[str]:
        """Those that files are to have. Raises SMPCheckpointError for parameters that the model
        has once and that have several values."""
        left_out: set[str] = set()
        for tied in self._tied():
            there = [name for name in tied if name in values.entries]
            for other in there[1:]:
                if not _equal(values.value(there[0]), values.value(other)):
                    raise SMPCheckpointError(
                        f"{there[0]} and {other} are one parameter in the {what}, and have "
                        "different values: the model was trained with them untied; set "
                        "tie_word_embeddings to false in the config"
                    )
                left_out.add(other)
        return [name for name in values.entries if name not in left_out]


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


def _told(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def has_replaced_names(names: Iterable[str]) -> bool:
    """True for names of a whole model that tensor parallelism has replaced.

    >>> has_replaced_names(["transformer.seq_layers.0.output.dense1.bias"])
    True
    """
    return any(name.startswith("transformer.seq_layers.") for name in names)
