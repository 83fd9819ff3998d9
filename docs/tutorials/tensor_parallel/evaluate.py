"""Measures the trained model on unseen batches: plain Transformers, one process."""

from pydoc_data.topics import topics

import torch
from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained("build/gpt2").eval()
text = "\n\n".join(topics[name] for name in sorted(topics))
text_bytes = torch.tensor(list(text.encode()))

starts = torch.randint(len(text_bytes) - 64, (64,), generator=torch.Generator().manual_seed(0))
batch = torch.stack([text_bytes[start : start + 64] for start in starts])
with torch.no_grad():
    loss = model(input_ids=batch, labels=batch).loss
print(f"mean loss in plain Transformers: {loss:.4f}")
