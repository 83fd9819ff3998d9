# SPDX-License-Identifier: Apache-2.0
"""A language model under the Trainer of Transformers, which itself calls the library where a job
asks for it: nothing here names it. Characters of Python's own text on its language."""

import argparse
import json
import os
import pydoc_data.topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

LENGTH = 32


def examples(count):
    text = "\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore")
    rows = torch.tensor(list(text[: count * LENGTH])).view(count, LENGTH)
    return [{"input_ids": row, "labels": row} for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume", default=None)
    args = parser.parse_args()

    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_head=4, n_embd=32, vocab_size=128, n_positions=LENGTH,
                   resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    )  # fmt: skip
    data = examples(80)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out, num_train_epochs=2, per_device_train_batch_size=8,
            per_device_eval_batch_size=8, learning_rate=3e-3, logging_steps=1,
            save_strategy="epoch", evaluation_strategy="epoch", report_to=[], disable_tqdm=True,
        ),
        train_dataset=data[:64],
        eval_dataset=data[64:],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model(os.path.join(args.out, "final"))
    if trainer.is_world_process_zero():
        with open(os.path.join(args.out, "results.json"), "w") as file:
            json.dump(trainer.state.log_history, file)


if __name__ == "__main__":
    main()
