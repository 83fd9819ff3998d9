# SPDX-License-Identifier: Apache-2.0
"""Changes to FSDP1 and ``torch.distributed.checkpoint``, made in place when ``torch.sagemaker`` is
imported. Until ``init`` they only take the arguments that plain PyTorch does not know."""

from smdistributed.sagemaker._patches import (
    activation_offloading,
    construction,
    coordinators,
    empty_shards,
    local_files,
    optimizer_loading,
    split_models,
    state_dict_configs,
)


def install() -> None:
    """Once a process: the module of this package is imported once."""
    activation_offloading.install()
    construction.install()
    coordinators.install()
    empty_shards.install()
    local_files.install()
    optimizer_loading.install()
    split_models.install()
    state_dict_configs.install()
