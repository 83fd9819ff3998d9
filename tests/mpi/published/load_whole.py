# SPDX-License-Identifier: Apache-2.0
"""Loads the whole model that a script has saved, as its users do, and writes as JSON which names
did not match, and the loss of the first batch of each rank of validation:

    load_whole.py MODEL DATA RANKS BATCH BF16 RESULT
"""

import gzip
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def main():
    folder, data, ranks, batch, bf16, result = sys.argv[1:]
    model, told = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="sdpa"
    )
    model = model.bfloat16() if int(bf16) else model.float()
    with gzip.open(Path(data) / "part.json.gz", "rt") as file:
        rows = torch.tensor([json.loads(line)["input_ids"] for line in file])
    losses = []
    with torch.no_grad():
        for rank in range(int(ranks)):
            ids = rows[rank :: int(ranks)][: int(batch)]
            losses.append(model.eval()(input_ids=ids, labels=ids)["loss"].float())
    unmatched = {name: sorted(map(str, names)) for name, names in told.items() if names}
    found = {"unmatched": unmatched, "loss": sum(losses).item() / int(ranks)}
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
