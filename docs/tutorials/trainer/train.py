"""Trains a small GPT-2 on Python's manual with Transformers' Trainer."""

import argparse
import pydoc_data.topics

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.huggingface import SMPTrainer
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed

LENGTH = 32


def rows(count):
    text = "\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore")
    blocks = torch.tensor(list(text[: count * LENGTH])).view(count, LENGTH)
    return [{"input_ids": block, "labels": block} for block in blocks]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume", default=None)
    args = parser.parse_args()

    # [train]
    smp.init()
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            n_layer=4,
            n_head=4,
            n_embd=64,
            vocab_size=128,
            n_positions=LENGTH,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    data = rows(320)
    trainer = SMPTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            num_train_epochs=2,
            per_device_train_batch_size=16 // smp.dp_size(),
            per_device_eval_batch_size=16 // smp.dp_size(),
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            logging_steps=8,
            save_strategy="epoch",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=data[:256],
        eval_dataset=data[256:],
    )
    trainer.train(resume_from_checkpoint=args.resume)
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model(f"{args.out}/final")
    # [end train]
    if smp.rank() == 0:
        print(f"step {trainer.state.global_step}: evaluation loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
