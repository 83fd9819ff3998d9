# SPDX-License-Identifier: Apache-2.0
"""A GPT of two billion parameters, as a script that splits its model has it."""

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH, BATCH = 50_000, 2560, 24, 20, 1024, 8


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


@smp.step
def train_step(model: smp.DistributedModel, tokens: torch.Tensor) -> torch.Tensor:
    scores = model(tokens)
    loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    model.backward(loss)
    return loss


smp.init()
model = smp.DistributedModel(Gpt())
optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-4))
for _ in range(1000):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    optimizer.zero_grad()
    loss = train_step(model, tokens)
    optimizer.step()
