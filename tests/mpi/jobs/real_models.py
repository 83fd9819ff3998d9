# SPDX-License-Identifier: Apache-2.0
"""Models that people train, in miniature, and their training in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, WIDTH = 32, 6, 16
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Kind:
    """Recipe of a model, its batches and its loss."""

    make: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    layers: str  #: regular expression of the modules that may be checkpointed


# --- Models of Transformers: all dropout is off, for its noise depends on the rank ---


def _gpt2(**options: Any) -> nn.Module:
    """GPT-2, whose head is tied to its embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 - takes seconds

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=4,
            n_head=2,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            **options,
        )
    )


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM  # noqa: PLC0415

    return BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
        )
    )


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification  # noqa: PLC0415

    return ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=4,
            hidden_size=WIDTH,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=2 * WIDTH,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
            num_labels=4,
        )
    )


def _t5() -> nn.Module:
    """One embedding for encoder, decoder and head; the first layers' position bias goes to all."""
    from transformers import T5Config, T5ForConditionalGeneration  # noqa: PLC0415

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=WIDTH,
            d_kv=8,
            d_ff=2 * WIDTH,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=2,
            dropout_rate=0,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


# --- Of our own ---


class _Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = (
            nn.Identity()
            if stride == 1
            else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Has buffers that each microbatch changes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1)
        self.layer1 = nn.Sequential(_Residual(4, 4, 1), _Residual(4, 4, 1))
        self.layer2 = nn.Sequential(_Residual(4, 8, 2), _Residual(8, 8, 1))
        self.head = nn.Linear(8, 4)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x = self.layer2(self.layer1(self.stem(pixel_values)))
        return self.head(x.mean((2, 3)))


class _Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x))


class Choosing(nn.Module):
    """Calls modules in a number and order that depend on the data; some microbatches leave an
    expert out, and no two need the same calls."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.experts = nn.ModuleList(_Expert() for _ in range(4))
        self.again = _Expert()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens).mean(1)
        for choice in (tokens[:, 0] % len(self.experts)).tolist():
            x = x + self.experts[choice](x)
        for _ in range(int(tokens.sum()) % 3):
            x = self.again(x)
        return self.head(x)


def _tokens(size: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (size, LENGTH), generator=generator)


def _text(size: int, generator: torch.Generator) -> Batch:
    tokens = _tokens(size, generator)
    return {"input_ids": tokens, "labels": tokens}


def _translation(size: int, generator: torch.Generator) -> Batch:
    return {"input_ids": _tokens(size, generator), "labels": _tokens(size, generator)}


def _classes(size: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 4, (size,), generator=generator)


def _images(size: int, generator: torch.Generator) -> Batch:
    pixels = torch.randn(size, 3, 8, 8, generator=generator, dtype=torch.float64)
    return {"pixel_values": pixels, "labels": _classes(size, generator)}


def _labelled_tokens(size: int, generator: torch.Generator) -> Batch:
    return {"tokens": _tokens(size, generator), "labels": _classes(size, generator)}


def _own_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def _class_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    return F.cross_entropy(model(**inputs), batch["labels"])


KINDS = {
    "gpt2": Kind(lambda: _gpt2(use_cache=False), _text, _own_loss, r"transformer\.h\.\d+"),
    "gpt2_with_cache": Kind(_gpt2, _text, _own_loss, r"transformer\.h\.\d+\.mlp"),
    "bert": Kind(_bert, _text, _own_loss, r"bert\.encoder\.layer\.\d+"),
    "vit": Kind(_vit, _images, _own_loss, r"vit\.encoder\.layer\.\d+"),
    "t5": Kind(_t5, _translation, _own_loss, r"(en|de)coder\.block\.\d+\.layer\.\d+"),
    "resnet": Kind(ResNet, _images, _class_loss, r"layer\d\.\d\.(first|second)"),
    "choosing": Kind(Choosing, _labelled_tokens, _class_loss, r"experts\.\d+|again"),
}


def make(kind: str) -> nn.Module:
    """The same weights in every process, in doubles: only the order of sums may differ."""
    torch.manual_seed(5)
    return KINDS[kind].make().double()


def batches(kind: str, steps: int, size: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(6)
    return [KINDS[kind].batch(size, generator) for _ in range(steps)]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train_alone(
    kind: str, steps: int, size: int, microbatches: int
) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    """Losses by step and microbatch, and the trained state."""
    torch.set_num_threads(1)
    model = make(kind).train()
    optimizer = optimizer_of(model)
    losses: list[list[float]] = []
    for batch in batches(kind, steps, size):
        optimizer.zero_grad()
        losses.append([])
        cut = {key: value.chunk(microbatches) for key, value in batch.items()}
        for index in range(microbatches):
            loss = KINDS[kind].loss(model, {key: parts[index] for key, parts in cut.items()})
            (loss / microbatches).backward()
            losses[-1].append(loss.item())
        optimizer.step()
    return losses, model.state_dict()
