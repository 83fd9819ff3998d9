# SPDX-License-Identifier: Apache-2.0
"""Settings of mixtures of experts, as scripts write them down."""

from __future__ import annotations

from dataclasses import dataclass

LOAD_BALANCING = ("sinkhorn", "aux_loss", "balanced", "none")


@dataclass
class MoEConfig:
    """Settings alone: ``torch.sagemaker.transform`` refuses them, as expert parallelism is not
    offered.

    >>> MoEConfig().moe_load_balancing
    'sinkhorn'
    """

    smp_moe: bool = True
    random_seed: int = 12345
    moe_load_balancing: str = "sinkhorn"
    global_token_shuffle: bool = False
    moe_all_to_all_dispatcher: bool = True
    moe_aux_loss_coeff: float = 0.001
    moe_z_loss_coeff: float = 0.001
    use_cpu_initialization: bool = False

    def __post_init__(self) -> None:
        if self.moe_load_balancing not in LOAD_BALANCING:
            raise ValueError(
                f"moe_load_balancing is {self.moe_load_balancing!r}; expected one of "
                f"{', '.join(LOAD_BALANCING)}"
            )
