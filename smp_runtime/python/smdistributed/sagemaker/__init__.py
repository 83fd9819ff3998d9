# SPDX-License-Identifier: Apache-2.0
"""SMP v2: ``import torch.sagemaker as tsm``, for scripts with FSDP.

The names of this package are those of ``torch.sagemaker``, module by module: a finder
(``_smp_torch_sagemaker``, started by a ``.pth`` file in site-packages, else by importing this
package) gives one for the other. Importing it changes FSDP1 and ``torch.distributed.checkpoint``
in place (``_patches``), so it comes before the script's other imports of names from them.

    _patches         what FSDP1 and DCP do otherwise from now on
    _job, _settings  init: origins of settings, groups; their keys and checks are C++'s
    state_handler    tsm.state
    _ranker          arithmetic of ranks, C++'s as well
    random_states    random numbers that each tensor rank draws for itself
    delayed_param, grad_norm, logger, transformation, utils, nn
    checkpoint, distributed
                     checkpoints: folders; saving and loading, also beside training
    _cuda_calls_on_cpu, _absent_packages
                     scripts that were written for GPUs and Transformer Engine, without them
    tensor_parallel  models whose layers are split over ranks; _session is under them
    moe, context_parallel
                     names that scripts import; what is not there raises when it is used
"""

import _smp_torch_sagemaker as _finder

from smdistributed.sagemaker import _absent_packages, _cuda_calls_on_cpu, _patches
from smdistributed.sagemaker._job import init, is_initialized
from smdistributed.sagemaker.state_handler import state
from smdistributed.sagemaker.transformation import transform

__version__ = "2.8.0+open.1"
__all__ = ["init", "is_initialized", "state", "transform"]

_finder.install()
_patches.install()
_absent_packages.offer()
if _cuda_calls_on_cpu.is_asked_for():
    _cuda_calls_on_cpu.install()
