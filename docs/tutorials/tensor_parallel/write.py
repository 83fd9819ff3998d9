"""Continues a sentence with the trained model: plain Transformers, one process."""

import torch
from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained("build/gpt2").eval()
prompt = torch.tensor([list(b"The statement ")])
with torch.no_grad():
    written = model.generate(prompt, max_length=60, do_sample=False, pad_token_id=0)
print("written:", repr(bytes(written[0].tolist()).decode(errors="replace")))
