# SPDX-License-Identifier: Apache-2.0
"""The loss of a step for the live line and the metrics: this rank's, and the mean over replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch._pipeline.containers import is_sequence
from smdistributed.modelparallel.torch._session.devices import computing_device


def loss_of(outputs: Sequence[Any]) -> torch.Tensor | None:
    """Mean over the microbatches of what each returned as ``loss``, or of its first number with a
    fraction: a scalar of 64 bits, where the loss is. None where a microbatch has none.

    >>> loss_of([(torch.zeros(2, 3), torch.tensor(1.0)), (torch.zeros(2, 3), torch.tensor(3.0))])
    tensor(2., dtype=torch.float64)
    >>> loss_of([{"count": 3, "loss": 0.5}])
    tensor(0.5000, dtype=torch.float64)
    >>> loss_of([torch.zeros(2, 3)]) is None
    True
    """
    numbers: list[torch.Tensor] = []
    for output in outputs:
        number = _first_number(output)
        if number is None:
            return None
        numbers.append(number)
    with torch.no_grad():
        if len({(number.shape, number.dtype, number.device) for number in numbers}) > 1:
            place = numbers[0].device
            numbers = [number.reshape(()).to(place, torch.float64) for number in numbers]
        return torch.stack(numbers).mean(dtype=torch.float64)


def _first_number(output: Any) -> torch.Tensor | None:
    if isinstance(output, torch.Tensor):
        plain = output.numel() == 1 and output.is_floating_point() and not output.is_sparse
        return output if plain else None
    if isinstance(output, float):
        return torch.tensor(output)
    items: Sequence[Any] = ()
    if isinstance(output, Mapping):
        items = [output["loss"]] if "loss" in output else list(output.values())
    elif is_sequence(output):
        items = output
    return next((n for n in map(_first_number, items) if n is not None), None)


class ReplicaLoss:
    """The mean of a step's loss over the data-parallel group of rank 0, which reports it.

    It goes along with the gradients: where a step averages those, and no replica can be missing,
    each rank of the group starts one exchange of two numbers and goes on. Only rank 0 waits for it,
    and only in steps of which it says something; no rank waits for its GPU.
    """

    def __init__(self, groups: _runtime.Groups) -> None:
        self._groups = groups
        self._sum_and_count: torch.Tensor | None = None
        self._work: dist.Work | None = None

    def forget(self) -> None:
        """A step begins, and has not averaged anything yet."""
        self._work = None

    def exchange(self, own: torch.Tensor | None) -> None:
        """After gradients were averaged. Collective over the group; does not wait.

        ``own`` is the loss of this rank's step; None where it has none, or made no step.
        """
        device = computing_device()
        if own is None:
            numbers = torch.zeros(2, dtype=torch.float64, device=device)
        else:
            numbers = torch.nn.functional.pad(own.to(device).reshape(1), (0, 1), value=1.0)
        # The group that gradients are averaged in: its ranks come here in the same order.
        group = self._groups.internal_group("DP")
        self._sum_and_count = numbers
        self._work = dist.all_reduce(numbers, group=group, async_op=True)

    def mean(self) -> tuple[float | None, int] | None:
        """Over how many ranks the mean is, and the mean; waits for the others. None unless this
        step averaged gradients, or where a rank was lost, which others will say."""
        if self._work is None or self._sum_and_count is None:
            return None
        try:
            self._work.wait()
            total, count = self._sum_and_count.tolist()
        except RuntimeError:
            return None
        return (total / count if count else None), int(count)
