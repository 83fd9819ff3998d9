"""GPT-2 learns to write like Python's manual; its layers are split over tensor-parallel ranks."""

from pydoc_data.topics import topics

import smdistributed.modelparallel.torch as smp
import torch
from transformers import GPT2Config, GPT2LMHeadModel

# [init]
smp.init({"ddp": True, "_match_weights": True})  # settings of the job win over these
if torch.cuda.is_available():
    torch.cuda.set_device(smp.local_rank())
torch.manual_seed(0)
# [end init]

# The language reference that comes with Python, as numbers of bytes.
text = "\n\n".join(topics[name] for name in sorted(topics))
text_bytes = torch.tensor(list(text.encode()))

# [model]
config = GPT2Config(
    vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
with smp.model_creation(tensor_parallelism=True):
    model = GPT2LMHeadModel(config)
model = smp.DistributedModel(model)
optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=3e-3))
# [end model]


@smp.step
def train_step(model, tokens):
    loss = model(input_ids=tokens, labels=tokens)["loss"]
    model.backward(loss)
    return loss


# [loop]
for step in range(1, 61):
    starts = torch.randint(
        len(text_bytes) - 64, (16,), generator=torch.Generator().manual_seed(step)
    )
    batch = torch.stack([text_bytes[start : start + 64] for start in starts])
    own = batch.chunk(smp.dp_size())[smp.dp_rank()]  # tensor-parallel ranks feed different samples
    optimizer.zero_grad()
    loss = train_step(model, own).reduce_mean()
    optimizer.step()
    losses = smp.allgather(loss.item(), smp.DP_GROUP)
    if smp.rank() == 0 and step % 20 == 0:
        print(f"step {step}: mean loss {sum(losses) / len(losses):.4f}", flush=True)
# [end loop]

if smp.rank() == 0:
    print(f"a rank holds {sum(p.numel() for p in model.local_parameters())} parameters", flush=True)

# [save]
smp.save_checkpoint("build/gpt2", tag="pytorch_model.bin", partial=False)
if smp.rank() == 0:
    config.save_pretrained("build/gpt2")
# [end save]
