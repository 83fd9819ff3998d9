# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_smp_trainer.py, and one process: the same script with two Trainers."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path
from typing import Any

import torch

LENGTH, BATCH, ROWS, EVALUATED = 16, 8, 40, 20


def examples(count: int) -> list[dict[str, torch.Tensor]]:
    """Lines of Python's own text on its language; the labels of some characters are left out, of
    another number in each, so that means of means are other values than means."""
    text = "\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore")
    rows = torch.tensor(list(text[: count * LENGTH])).view(count, LENGTH)
    labels = rows.clone()
    for number, row in enumerate(labels):
        row[: number % 5] = -100
    return [{"input_ids": row, "labels": label} for row, label in zip(rows, labels, strict=True)]


def model(kind: str = "gpt2") -> Any:
    """The same weights in every process, in doubles: only the order of sums may differ."""
    import transformers  # noqa: PLC0415

    torch.manual_seed(3)
    if kind == "bert":
        return transformers.BertForSequenceClassification(
            transformers.BertConfig(
                vocab_size=128, hidden_size=16, num_hidden_layers=4, num_attention_heads=4,
                intermediate_size=32, max_position_embeddings=LENGTH, num_labels=3,
                hidden_dropout_prob=0, attention_probs_dropout_prob=0,
            )
        ).double()  # fmt: skip
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=4, n_head=4, n_embd=16, vocab_size=128, n_positions=LENGTH,
            bos_token_id=0, eos_token_id=0,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
    ).double()  # fmt: skip


def arguments(folder: str, replicas: int, **others: Any) -> Any:
    import transformers  # noqa: PLC0415

    return transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH // replicas,
        per_device_eval_batch_size=BATCH // replicas,
        **{
            "num_train_epochs": 2, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5,
            "learning_rate": 3e-3, "warmup_steps": 2, "weight_decay": 0.1, "logging_steps": 1,
            "save_strategy": "epoch", "eval_strategy": "epoch", "report_to": [], "use_cpu": True,
            "disable_tqdm": True, **others,
        },
    )  # fmt: skip


def run(kind: Any, folder: str, replicas: int, resume: str | None = None, **others: Any) -> Any:
    """Logs, predictions and saved weights of a Trainer of class ``kind``."""
    data = examples(ROWS + EVALUATED)
    trainer = kind(
        model=model(),
        args=arguments(folder, replicas, **others),
        train_dataset=data[:ROWS],
        eval_dataset=data[ROWS:],
    )
    return results(trainer, data, folder, resume)


def results(trainer: Any, data: Any, folder: str, resume: str | None = None) -> dict[str, Any]:
    trainer.train(resume_from_checkpoint=resume)
    predicted = trainer.predict(data[ROWS:])
    trainer.save_model(f"{folder}/final")
    return {
        "log": trainer.state.log_history,
        "predictions": predicted.predictions,
        "labels": predicted.label_ids,
        "test_loss": predicted.metrics["test_loss"],
        "evaluated": trainer.evaluate()["eval_loss"],
        "state": saved(f"{folder}/final"),
    }


def saved(folder: str) -> dict[str, torch.Tensor]:
    """Weights that ``from_pretrained`` reads from a folder."""
    import transformers  # noqa: PLC0415

    read = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    return {name: value.clone() for name, value in read.state_dict().items()}


def alone(folder: str, **others: Any) -> dict[str, Any]:
    import transformers  # noqa: PLC0415

    return run(transformers.Trainer, folder, 1, **others)


def train(folder: str, resume: str | None = None, **others: Any) -> dict[str, Any]:
    import smdistributed.modelparallel.torch as smp  # noqa: PLC0415
    from smdistributed.modelparallel.torch.huggingface import SMPTrainer  # noqa: PLC0415

    return run(SMPTrainer, folder, smp.dp_size(), resume, **others)


def parts_of(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).glob("smp_partial/*"))


def resumed(folder: str, checkpoint: str, **others: Any) -> dict[str, Any]:
    """Goes on from a checkpoint with a model of other values."""
    import smdistributed.modelparallel.torch as smp  # noqa: PLC0415
    from smdistributed.modelparallel.torch.huggingface import SMPTrainer  # noqa: PLC0415

    made = model
    try:
        globals()["model"] = _with_other_values
        return run(SMPTrainer, folder, smp.dp_size(), f"{folder}/{checkpoint}", **others)
    finally:
        globals()["model"] = made


def _with_other_values() -> Any:
    other = _plain_model()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(0.5)
    return other


_plain_model = model


def in_parts_only(folder: str, replicas: int, resume: str | None = None) -> dict[str, Any]:
    from smdistributed.modelparallel.torch.huggingface import SMPTrainer  # noqa: PLC0415

    class InParts(SMPTrainer):
        full_checkpoints = False

    return run(InParts, folder, replicas, resume and f"{folder}/{resume}")


def own_loss(folder: str, adapt: str, replicas: int) -> dict[str, Any]:
    """A script's own Trainer, with a loss of its own, a mean; by itself, or adapted as a class or
    as an object."""
    import transformers  # noqa: PLC0415

    class Weighted(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(input_ids=inputs["input_ids"])
            logits, labels = outputs.logits[:, :-1], inputs["labels"][:, 1:].clamp(min=0)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            return (loss, {"loss": loss, "logits": outputs.logits}) if return_outputs else loss

    data = examples(ROWS + EVALUATED)

    def made(kind: Any) -> Any:
        trainer = kind(model=model(), args=arguments(folder, replicas, save_strategy="no"),
                       train_dataset=data[:ROWS], eval_dataset=data[ROWS:])  # fmt: skip
        trainer.model_accepts_loss_kwargs = False  # as Transformers asks of such a loss
        return trainer

    if adapt == "no":
        return results(made(Weighted), data, folder)
    from smdistributed.modelparallel.torch.huggingface import adapt_trainer  # noqa: PLC0415

    if adapt == "class":
        return results(made(adapt_trainer(Weighted)), data, folder)
    return results(adapt_trainer(made(Weighted)), data, folder)


def refusals(folder: str) -> list[str]:
    """Errors for what does not work."""
    import transformers  # noqa: PLC0415
    from smdistributed.modelparallel.torch.exceptions import SMPError  # noqa: PLC0415
    from smdistributed.modelparallel.torch.huggingface import (  # noqa: PLC0415
        SMPTrainer,
        adapt_trainer,
    )

    class OwnStep(transformers.Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            return model(**inputs).loss

    def fp16() -> None:
        args = arguments(folder, 1)
        args.fp16 = True
        SMPTrainer(model=model(), args=args)

    def tuned() -> None:
        SMPTrainer(model=model(), args=arguments(folder, 1, auto_find_batch_size=True))

    said = []
    for act in (fp16, tuned, lambda: adapt_trainer(OwnStep), lambda: adapt_trainer(3)):
        try:
            act()
        except SMPError as error:
            said.append(str(error))
    return said


def classified(folder: str, replicas: int, smp_trainer: bool, layers: bool = False) -> list[float]:
    """BERT, whose labels are one a row; the losses, with layers recomputed on request."""
    import transformers  # noqa: PLC0415

    kind = transformers.Trainer
    if smp_trainer:
        from smdistributed.modelparallel.torch.huggingface import SMPTrainer  # noqa: PLC0415

        kind = SMPTrainer
    data = [{"input_ids": one["input_ids"], "labels": number % 3}
            for number, one in enumerate(examples(22))]  # fmt: skip
    args = arguments(folder, replicas, save_strategy="no", gradient_checkpointing=layers,
                     gradient_accumulation_steps=1)  # fmt: skip
    trainer = kind(model=model("bert"), args=args, train_dataset=data, eval_dataset=data[:11])
    trainer.train()
    return [entry[key] for entry in trainer.state.log_history for key in ("loss", "eval_loss")
            if key in entry]  # fmt: skip


def version() -> str:
    import transformers  # noqa: PLC0415

    return str(transformers.__version__)
