# SPDX-License-Identifier: Apache-2.0
"""The loss scale of 16-bit training, held against torch's GradScaler."""

import random

import pytest
from smdistributed import _runtime

from tests.mpi.jobs.torch_scaler import TorchScaler

SEQUENCES, STEPS = 1000, 40


@pytest.mark.parametrize("first", range(0, SEQUENCES, 100))
def test_scales_of_random_overflows_are_those_of_torch(first: int) -> None:
    for seed in range(first, first + 100):
        generator = random.Random(seed)
        # Powers of two: both compute them exactly, we in 64 bits and torch in 32. Some begin where
        # one more growth would leave 32 bits.
        settings = {
            "scale": 2.0 ** generator.choice((0, 4, 16, 126, 127)),
            "factor": generator.choice((2.0, 4.0)),
            "window": generator.randrange(1, 6),
        }
        chance = generator.choice((0.05, 0.2, 0.5))
        theirs = TorchScaler(**settings)
        # Torch knows no least scale; this one is below all that these steps reach.
        ours = _runtime.LossScaler(dynamic=True, least=2.0**-100, **settings)
        for step in range(STEPS):
            overflow = generator.random() < chance

            ours.update(overflow)

            assert ours.scale == theirs.update(overflow), (seed, step, settings)
            assert ours.state()[1] % settings["window"] == theirs.good_steps(), (seed, step)
            if generator.random() < 0.05:  # a checkpoint keeps the whole state
                state = ours.state()
                ours = _runtime.LossScaler(dynamic=True, least=2.0**-100, **settings)
                ours.restore(state)
