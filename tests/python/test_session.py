# SPDX-License-Identifier: Apache-2.0
"""init, settings and ranks in a job of one process."""

import os
from types import ModuleType

import numpy
import pytest
import smdistributed.modelparallel.torch as library
import torch
import torch.distributed
from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import (
    SMPConfigError,
    SMPDeviceError,
    SMPNotInitializedError,
    SMPValidationError,
)


@pytest.mark.parametrize(
    "name", [n for n in library.__all__ if n.endswith(("_rank", "_size", "_group", "barrier"))]
)
def test_before_init_everything_names_itself(name: str) -> None:
    with pytest.raises(SMPNotInitializedError, match=rf"smp\.{name} was used before smp.init\(\)"):
        getattr(library, name)()


def test_before_init_settings_are_not_there() -> None:
    assert not library.is_initialized()
    with pytest.raises(SMPNotInitializedError):
        _ = library.state.cfg


def test_init_leaves_torch_distributed_initialised(smp: ModuleType) -> None:
    assert smp.is_initialized()
    assert torch.distributed.get_rank() == 0
    assert torch.distributed.get_world_size() == 1


def test_shutdown_undoes_init_and_init_works_again(smp: ModuleType) -> None:
    smp.shutdown()
    assert not torch.distributed.is_initialized()

    smp.init()

    assert smp.size() == 1


def test_the_end_of_a_forked_child_leaves_the_job_alone(smp: ModuleType) -> None:
    child = os.fork()
    if child == 0:
        smp.shutdown()
        os._exit(0 if torch.distributed.is_initialized() else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_job_level_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", '{"microbatches": 4}')

    library.init({"microbatches": 8, "pipeline": "simple"})

    assert library.state.cfg.microbatches == 4
    assert library.state.cfg.pipeline == "simple"
    library.shutdown()


def test_settings_have_every_spelling(smp: ModuleType) -> None:
    cfg = smp.state.cfg

    assert (cfg.partitions, cfg.pipeline_parallel_degree) == (1, 1)
    assert (cfg.fp16, cfg.prescaled_batch, cfg.shard_optimizer_state) == (False, False, False)
    assert cfg.sharded_data_parallel_degree == 1
    assert all(hasattr(cfg, name) for name in _runtime.parameter_names())


def test_scalars_of_numpy_are_settings(smp: ModuleType) -> None:
    smp.shutdown()

    smp.init({"microbatches": numpy.int64(3), "ddp": numpy.bool_(True)})

    assert smp.state.cfg.microbatches == 3
    assert smp.get_dp_process_group().size() == 1


def test_a_second_init_with_the_same_settings_is_a_warning(
    smp: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    smp.init({"microbatches": "2"})

    assert "a second time with the same settings" in capfd.readouterr().err


def test_a_second_init_with_other_settings_is_an_error(smp: ModuleType) -> None:
    with pytest.raises(SMPConfigError, match="a second time with other settings"):
        smp.init({"microbatches": 3})


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"microbatch": 2}, r'smp.init\(config\): unknown key "microbatch"; did you mean micro'),
        ({"partitions": 2}, "world size 1 is not divisible by partitions 2"),
        ({"microbatches": object()}, "holds something other than"),
        ({"horovod": True}, '"ddp": true'),
    ],
)
def test_bad_settings_are_value_errors(config: dict[str, object], text: str) -> None:
    with pytest.raises(SMPConfigError, match=text) as caught:
        library.init(config)

    assert isinstance(caught.value, ValueError)
    assert not library.is_initialized()


def test_a_config_that_is_no_dict_is_refused() -> None:
    with pytest.raises(SMPValidationError, match=r"smp\.init got str"):
        library.init("partitions=2")  # type: ignore[arg-type]


def test_process_groups_need_ddp(smp: ModuleType) -> None:
    with pytest.raises(SMPConfigError, match='add "ddp": true'):
        smp.get_dp_process_group()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this process sees a GPU")
def test_nccl_without_a_gpu_is_refused() -> None:
    with pytest.raises(SMPDeviceError, match="needs a CUDA device"):
        library.init({"ddp": True, "ddp_dist_backend": "nccl"})


def test_warnings_are_logged(capfd: pytest.CaptureFixture[str]) -> None:
    library.init({"_secret": 1, "fast_mode": 1})
    library.shutdown()

    said = capfd.readouterr().err
    assert 'private key "_secret"' in said
    assert "fast_mode=true is accepted without effect" in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SM_HOSTS", "algo-1"),
        ("SM_HOSTS", "[1]"),
        ("SMP_TIMEOUT_SECONDS", "soon"),
        ("SMP_NCCL_THROTTLE_LIMIT", "0"),
        ("SMP_NCCL_THROTTLE_LIMIT", "many"),
    ],
)
def test_variables_that_cannot_be_meant_are_refused(name: str, text: str) -> None:
    with pytest.raises(SMPConfigError, match=name):
        _runtime.runtime_options({name: text})
