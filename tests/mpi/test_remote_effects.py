# SPDX-License-Identifier: Apache-2.0
"""What a module of another partition does besides returning reaches its caller."""

import pytest
import torch
from jobs.effect_jobs import THINGS, Net, made, train_alone

CONFIG = {
    "partitions": 2,
    "microbatches": 2,
    "auto_partition": False,
    "default_partition": 0,
}
WAYS = [
    *THINGS,
    "attribute",
    "attribute_with_structure",
    "attribute_deleted",
    "buffer",
    "child_attribute",
    "set_by_caller",
    "in_place",
    "view_in_place",
    "context",
    "context_set",
    "context_input",
]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_remote_module_tells_is_known_to_its_caller_with_its_gradient(pool, way):
    results = pool(2).run("effect_jobs:train", CONFIG, way)

    losses, gradients = train_alone(made(Net, way))
    seen = set()
    for own_losses, own_gradients in results:
        assert own_losses == pytest.approx(losses, rel=1e-12)
        for name, gradient in own_gradients.items():
            torch.testing.assert_close(gradient, gradients[name], rtol=1e-12, atol=1e-14)
        seen |= own_gradients.keys()
    assert seen == gradients.keys()
