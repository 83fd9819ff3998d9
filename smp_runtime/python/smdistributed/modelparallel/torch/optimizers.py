# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: not there yet, making one raises."""

import torch

from smdistributed.modelparallel.torch.not_yet import unavailable_class

FusedLamb = unavailable_class("FusedLamb", "the fused LAMB optimizer", torch.optim.Optimizer)
FusedLAMB = FusedLamb
FusedNovoGrad = unavailable_class(
    "FusedNovoGrad", "the fused NovoGrad optimizer", torch.optim.Optimizer
)
FusedAdam = unavailable_class("FusedAdam", "the fused Adam optimizer", torch.optim.Optimizer)
