# SPDX-License-Identifier: Apache-2.0
"""Cases of test_published_v2.py: combinations of what published scripts of SMP v2 are started with.

The table is frozen. ``python -m tests.mpi.smp_v2_cases`` prints it anew, after a change of FACTORS.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

#: What a case has one value of each of.
FACTORS: dict[str, tuple[str | int, ...]] = {
    "model": ("llama_v2", "llama_v3", "mistral", "mixtral", "gpt2", "gpt_neox"),
    "checkpoint": ("sharded", "local", "async_sharded", "async_local"),
    "degree": (0, 1, 2),
    "ranks": (2, 4),
    "resumes": (0, 1),
    "bf16": (0, 1),
    "delayed": (0, 1),
    "offload": (0, 1),
    "orig_params": (0, 1),
    "strategy": ("hybrid_shard", "full_shard", "_hybrid_shard_zero2"),
}
#: Factors of which all combinations are there, besides the pairs of all factors.
TOGETHER = (
    ("checkpoint", "degree", "resumes"),
    ("checkpoint", "degree", "ranks"),
    ("checkpoint", "resumes", "orig_params"),
    ("degree", "resumes", "offload"),
    ("checkpoint", "degree", "strategy"),
    ("model", "bf16", "delayed"),
)
Values = tuple[str | int, ...]
Choice = dict[str, str | int]


@dataclass(frozen=True)
class Case:
    """A job of the script of amazon-sagemaker-examples."""

    model: str
    checkpoint: str
    degree: int
    ranks: int
    resumes: int
    bf16: int
    delayed: int
    offload: int
    orig_params: int
    strategy: str

    def __str__(self) -> str:
        flags = [name for name in ("resumes", "bf16", "delayed", "offload", "orig_params")
                 if getattr(self, name)]  # fmt: skip
        words = [self.model, self.checkpoint, f"np{self.ranks}", f"degree{self.degree}"]
        return "-".join([*words, self.strategy.strip("_"), *flags])


# fmt: off
TABLE: tuple[Values, ...] = (
    ("llama_v2", "sharded", 2, 2, 1, 0, 0, 1, 0, "hybrid_shard"),
    ("llama_v3", "local", 2, 4, 0, 1, 1, 1, 1, "full_shard"),
    ("mistral", "async_sharded", 2, 4, 1, 0, 1, 0, 0, "_hybrid_shard_zero2"),
    ("mixtral", "async_local", 2, 2, 0, 1, 0, 0, 1, "hybrid_shard"),
    ("gpt2", "async_local", 1, 2, 1, 0, 1, 1, 0, "full_shard"),
    ("gpt_neox", "async_sharded", 1, 2, 0, 1, 0, 1, 1, "_hybrid_shard_zero2"),
    ("llama_v3", "local", 1, 4, 1, 0, 0, 0, 0, "hybrid_shard"),
    ("llama_v2", "sharded", 1, 4, 0, 1, 1, 0, 1, "full_shard"),
    ("mixtral", "local", 0, 2, 1, 0, 1, 1, 1, "_hybrid_shard_zero2"),
    ("mistral", "async_local", 0, 4, 0, 1, 0, 1, 0, "hybrid_shard"),
    ("gpt_neox", "sharded", 0, 4, 1, 0, 0, 0, 0, "full_shard"),
    ("gpt2", "async_sharded", 0, 4, 0, 1, 1, 0, 1, "hybrid_shard"),
    ("mistral", "sharded", 1, 2, 1, 1, 1, 0, 1, "_hybrid_shard_zero2"),
    ("mixtral", "sharded", 0, 2, 0, 0, 0, 1, 0, "full_shard"),
    ("gpt2", "sharded", 2, 4, 0, 0, 0, 0, 0, "full_shard"),
    ("llama_v3", "sharded", 2, 2, 1, 1, 0, 1, 1, "_hybrid_shard_zero2"),
    ("gpt_neox", "sharded", 1, 2, 0, 0, 1, 0, 0, "hybrid_shard"),
    ("llama_v2", "sharded", 0, 4, 1, 1, 0, 1, 1, "hybrid_shard"),
    ("llama_v2", "sharded", 0, 2, 0, 0, 1, 0, 0, "_hybrid_shard_zero2"),
    ("mistral", "local", 1, 2, 0, 0, 0, 1, 0, "full_shard"),
    ("gpt_neox", "local", 2, 2, 1, 1, 1, 0, 1, "hybrid_shard"),
    ("gpt2", "local", 2, 4, 1, 1, 0, 1, 1, "_hybrid_shard_zero2"),
    ("mixtral", "local", 1, 4, 0, 1, 1, 0, 0, "_hybrid_shard_zero2"),
    ("llama_v3", "local", 0, 4, 0, 0, 1, 1, 1, "hybrid_shard"),
    ("llama_v2", "local", 0, 2, 1, 0, 0, 0, 0, "full_shard"),
    ("llama_v3", "async_sharded", 1, 4, 1, 1, 1, 1, 1, "full_shard"),
    ("mixtral", "async_sharded", 2, 2, 0, 0, 0, 0, 0, "hybrid_shard"),
    ("llama_v2", "async_sharded", 2, 4, 1, 1, 1, 1, 1, "full_shard"),
    ("mistral", "async_sharded", 1, 2, 0, 0, 0, 0, 0, "hybrid_shard"),
    ("gpt2", "async_sharded", 0, 2, 1, 1, 1, 1, 1, "full_shard"),
    ("gpt_neox", "async_sharded", 0, 4, 0, 0, 0, 0, 0, "_hybrid_shard_zero2"),
    ("llama_v3", "async_local", 2, 4, 1, 1, 1, 1, 1, "_hybrid_shard_zero2"),
    ("gpt_neox", "async_local", 2, 2, 0, 0, 0, 0, 0, "full_shard"),
    ("llama_v2", "async_local", 1, 4, 0, 1, 1, 1, 1, "hybrid_shard"),
    ("mistral", "async_local", 1, 2, 1, 0, 0, 0, 0, "_hybrid_shard_zero2"),
    ("mixtral", "async_local", 0, 2, 1, 1, 1, 1, 1, "full_shard"),
    ("gpt2", "async_local", 0, 4, 0, 0, 0, 0, 0, "_hybrid_shard_zero2"),
)
# fmt: on
CASES = [Case(**dict(zip(FACTORS, row, strict=True))) for row in TABLE]  # type: ignore[arg-type]


def wanted() -> set[tuple[tuple[str, str | int], ...]]:
    """Combinations of values that some case is to have."""
    groups = [*itertools.combinations(FACTORS, 2), *TOGETHER]
    return {
        tuple(sorted(zip(names, values, strict=True)))
        for names in groups
        for values in itertools.product(*(FACTORS[name] for name in names))
    }


def chosen() -> list[Values]:
    """Few cases that have all combinations. Each begins with one that no case before it has, and
    takes of each factor the value by which it has most of the others, the rarest of equals."""
    missing, place = wanted(), {name: at for at, name in enumerate(FACTORS)}
    rows: list[Values] = []
    while missing:
        choice: Choice = dict(max(missing, key=lambda one: (len(one), str(one))))
        for name in sorted(FACTORS, key=lambda one: (one not in choice, -len(FACTORS[one]))):
            if name not in choice:
                choice[name] = max(
                    FACTORS[name],
                    key=lambda value: (
                        _gain(missing, {**choice, name: value}),
                        -sum(row[place[name]] == value for row in rows),
                    ),
                )
        missing = {one for one in missing if not _has(choice, one)}
        rows.append(tuple(choice[name] for name in FACTORS))
    return rows


def _gain(missing: Iterable[Sequence[tuple[str, str | int]]], choice: Choice) -> int:
    """Combinations that the choice has, and part of what it may still come to have."""
    total = 0
    for one in missing:
        known = [choice.get(name, value) == value for name, value in one]
        if all(known):
            decided = sum(name in choice for name, _ in one)
            total += 10 ** (decided + 3 - len(one))
    return total


def _has(choice: Mapping[str, str | int], one: Sequence[tuple[str, str | int]]) -> bool:
    return all(choice[name] == value for name, value in one)


if __name__ == "__main__":
    assert [one.name for one in fields(Case)] == list(FACTORS)
    for row in chosen():
        print(f"    {row},".replace("'", '"'))
