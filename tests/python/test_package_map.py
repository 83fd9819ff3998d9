# SPDX-License-Identifier: Apache-2.0
"""Everything that published scripts import is there; what is not there yet says so when used."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import smdistributed
import smdistributed.modelparallel.torch as smp
import torch
from packaging.version import Version
from smdistributed.modelparallel.torch.exceptions import SMPError, SMPUnsupportedError

TORCH = "smdistributed.modelparallel.torch"
ABSENT = {"smdistributed.modelparallel.tensorflow"}
V2 = "smdistributed.sagemaker"


def modules_below(folder: Path, package: str) -> Iterator[str]:
    """Without importing packages, as pkgutil's own walk does: SMP v2's changes FSDP1 and DCP."""
    for found in pkgutil.iter_modules([str(folder)], f"{package}."):
        if found.name in ABSENT or found.name.endswith(("_runtime", "_smddp")):
            continue
        yield found.name
        if found.ispkg:
            yield from modules_below(folder / found.name.rpartition(".")[2], found.name)


MODULES = sorted(modules_below(Path(next(iter(smdistributed.__path__))), "smdistributed"))

#: Names of ``smp`` that the published documentation and scripts use.
NAMES = """
init is_initialized is_tracing state shutdown rank size local_rank local_size pp_rank pp_size
tp_rank tp_size rdp_rank rdp_size mp_rank mp_size dp_rank dp_size get_mp_group get_dp_group
get_pp_group get_tp_group get_rdp_group get_world_process_group get_mp_process_group
get_dp_process_group get_pp_process_group get_tp_process_group get_rdp_process_group
CommGroup.WORLD CommGroup.MP_GROUP CommGroup.DP_GROUP CommGroup.PP_GROUP CommGroup.TP_GROUP
CommGroup.RDP_GROUP WORLD MP_GROUP DP_GROUP PP_GROUP TP_GROUP RDP_GROUP RankType.WORLD_RANK
RankType.MP_RANK RankType.DP_RANK RankType.PP_RANK RankType.TP_RANK RankType.RDP_RANK broadcast
send recv_from allgather barrier step DistributedModel DistributedModel.forward
DistributedModel.backward DistributedModel.partitioned DistributedModel.get_module
DistributedModel.local_parameters DistributedModel.local_named_parameters
DistributedModel.local_buffers DistributedModel.local_named_buffers DistributedModel.local_modules
DistributedModel.local_named_modules DistributedModel.local_state_dict DistributedModel.state_dict
DistributedModel.load_state_dict DistributedModel.register_post_partition_hook
DistributedModel.register_post_step_hook DistributedModel.register_comm_hook DistributedModel.join
DistributedModel.cpu DistributedModel.distributed_modules
DistributedModel.is_distributed_parameter DistributedModel.is_distributed_buffer
DistributedModel.is_scaled_batch_parameter DistributedModel.is_scaled_batch_buffer
DistributedModel.default_reducer_named_parameters DistributedOptimizer DistributedOptimizer.step
DistributedOptimizer.zero_grad DistributedOptimizer.state_dict
DistributedOptimizer.local_state_dict DistributedOptimizer.load_state_dict
DistributedOptimizer.orig_state_dict DistributedOptimizer.clip_master_grads
DistributedOptimizer.overflow DistributedOptimizer.loss_scale DistributedOptimizer.loss_scaler
DistributedOptimizer.dynamic_loss_scale DistributedOptimizer.backward
DistributedOptimizer.update_master_grads DistributedOptimizer.init_master_params
DistributedOptimizer.reload_model_params DistributedOptimizer.fp32_partitioned_groups_flat
DistributedOptimizer.fp16_groups DistributedOptimizer.ds_param_shard_group amp.GradScaler
nn.FusedLayerNorm optimizers.FusedLAMB optimizers.FusedLamb optimizers.FusedNovoGrad
optimizers.FusedAdam partition set_partition tensor_parallelism set_tensor_parallelism
delay_param_initialization model_creation tp_register tp_register_with_module nn.DistributedLinear
nn.DistributedEmbedding nn.DistributedTransformerLMHead nn.DistributedTransformer
nn.DistributedTransformerLayer nn.DistributedAttentionLayer nn.DistributedTransformerOutputLayer
nn.FlashAttentionLayer set_activation_checkpointing patches.checkpoint.checkpoint
patches.checkpoint.checkpoint_sequential save load save_checkpoint resume_from_checkpoint
"""


def test_transformers_finds_the_package() -> None:
    assert importlib.util.find_spec("smdistributed") is not None


def test_version_passes_the_comparisons_of_its_callers() -> None:
    version = Version(importlib.import_module("smdistributed.modelparallel").__version__)

    assert version >= Version("1.10")
    assert version >= Version("1.15")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (f"{TORCH}.nn", ["FusedLayerNorm", "DistributedLinear", "FlashAttentionLayer"]),
        (f"{TORCH}.optimizers", ["FusedLAMB", "FusedLamb", "FusedNovoGrad", "FusedAdam"]),
        (f"{TORCH}.amp", ["GradScaler"]),
        (f"{TORCH}.patches.checkpoint", ["checkpoint", "checkpoint_sequential"]),
        (f"{TORCH}.state_mod", ["state"]),
        (f"{TORCH}.utils", ["rmsg", "get_distribution_axis"]),
        (f"{TORCH}.model", ["DistributedModel"]),
        (f"{TORCH}.step", ["StepOutput"]),
        (f"{TORCH}.sharded_data_parallel_checkpoint", ["get_param_shapes", "get_buffer_names"]),
        (f"{TORCH}.exceptions", ["SMPNotInitializedError"]),
        ("smdistributed.modelparallel.backend.exceptions", ["SMPBackendError"]),
        ("smdistributed.modelparallel.test.torch.utils", ["verify", "dump_model"]),
    ],
)
def test_import_paths_of_published_scripts_exist(module: str, names: list[str]) -> None:
    loaded = importlib.import_module(module)

    assert [name for name in names if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("name", NAMES.split())
def test_every_documented_name_is_there(name: str) -> None:
    found: object = smp
    for part in name.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize(
    "model",
    [
        "bert",
        "gemma",
        "gpt2",
        "gptj",
        "gptneo",
        "gptneox",
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "roberta",
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "translate_hf_state_dict_to_smdistributed_{}",
        "translate_hf_state_dict_to_smdistributed",
        "translate_state_dict_to_smdistributed",
        "translate_state_dict_to_hf_{}",
    ],
)
def test_translators_take_a_maximal_length_by_position(model: str, name: str) -> None:
    module = importlib.import_module(f"{TORCH}.nn.huggingface.{model}")
    translate = getattr(module, name.format(model))

    parameters = list(inspect.signature(translate).parameters)

    assert parameters == ["state_dict", "max_seq_len"]


@pytest.mark.parametrize(
    "name",
    [
        "translate_hf_gptj_state_dict_to_smdistributed_gptj",
        "translate_hf_gptj_state_dict_to_smdistributed",
    ],
)
def test_gptj_keeps_the_names_of_its_own(name: str) -> None:
    gptj = importlib.import_module(f"{TORCH}.nn.huggingface.gptj")

    assert getattr(gptj, name) is gptj.translate_hf_state_dict_to_smdistributed_gptj


def test_step_stays_the_decorator_when_its_module_is_imported() -> None:
    module = importlib.import_module(f"{TORCH}.step")

    assert inspect.ismodule(module)
    assert smp.step is module.step
    assert callable(smp.step)


def test_attributes_that_scripts_reach_without_importing() -> None:
    assert smp.model.DistributedModel is smp.DistributedModel
    assert callable(smp.nn.huggingface.gpt2.translate_state_dict_to_hf_gpt2)
    assert smp.state is smp.state_mod.state
    assert smp.WORLD is smp.CommGroup.WORLD
    assert smp.PP_GROUP is smp.CommGroup.PP_GROUP
    assert issubclass(smp.nn.FusedLayerNorm, torch.nn.Module)


def test_distributed_modules_are_made_after_init() -> None:
    with pytest.raises(smp.exceptions.SMPNotInitializedError, match=r"before smp\.init\(\)"):
        smp.nn.DistributedLinear(4, 4)


def test_contexts_that_are_switched_off_do_nothing() -> None:
    with smp.delay_param_initialization(enabled=False), smp.tensor_parallelism(enabled=False):
        layer = torch.nn.Linear(2, 2)

    assert layer.weight.shape == (2, 2)


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_absent_packages_raise_an_import_error_that_names_them(name: str) -> None:
    with pytest.raises(ImportError, match=r"not offered|not available yet") as caught:
        importlib.import_module(name)

    assert isinstance(caught.value, SMPUnsupportedError)


@pytest.mark.parametrize(
    "name", [f"{TORCH}.exceptions", "smdistributed.modelparallel.backend.exceptions"]
)
def test_exception_modules_hold_exceptions_by_name(name: str) -> None:
    module = importlib.import_module(name)

    classes = [getattr(module, n) for n in dir(module) if inspect.isclass(getattr(module, n))]

    assert classes
    assert all(issubclass(c, RuntimeError) and c.__name__.startswith("SMP") for c in classes)
    assert issubclass(smp.exceptions.SMPConfigError, (SMPError, ValueError))


def test_importing_starts_nothing() -> None:
    code = (
        "import threading, torch.distributed, smdistributed.modelparallel.torch as smp; "
        "assert not smp.is_initialized() and not torch.distributed.is_initialized(); "
        "assert threading.active_count() == 1"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(V2)])
def test_examples_in_docstrings_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)

    outcome = doctest.testmod(importlib.import_module(name))

    assert outcome.failed == 0


def test_examples_in_docstrings_of_smp_v2_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of their own, which these modules change."""
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    code = (
        "import doctest, importlib, sys\n"
        "found = [doctest.testmod(importlib.import_module(name)) for name in sys.argv[1:]]\n"
        "assert sum(one.attempted for one in found) > 40\n"
        "assert not any(one.failed for one in found)\n"
    )
    modules = [name for name in MODULES if name.startswith(V2)]

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *modules],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_texts_name_what_smp_has():
    """Covers errors, warnings and docstrings: a user who is told to call something finds it."""
    folder = Path(smp.__file__).parent
    named = {
        (name, file.name)
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"(?<![\w.])smp\.([A-Za-z]\w*)", node.value)
    }

    assert len(named) > 100
    assert sorted(one for one in named if not hasattr(smp, one[0])) == []
