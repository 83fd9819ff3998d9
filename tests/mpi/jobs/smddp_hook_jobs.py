# SPDX-License-Identifier: Apache-2.0
"""Futures, hooks of DDP and arguments that few scripts have, over smddp; each rank prints what
holds."""

import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

Future = torch.futures.Future[list[torch.Tensor]]
HANDLED = (signal.SIGINT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV,
           signal.SIGTERM)  # fmt: skip


def interrupted(number: int, frame: FrameType | None) -> None:
    """A user's own."""


def same(ours: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    if not torch.equal(ours, expected):
        raise AssertionError(f"{what}: {ours} is not {expected}")


def futures() -> None:
    """When wait() returns, the future is there: of collectives, sends and receives."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(1000):
        work = dist.all_reduce(torch.full((3,), float(turn)), async_op=True)
        assert work is not None
        work.wait()
        same(work.get_future().value()[0], torch.full((3,), float(turn * size)), turn)
    after, before = (rank + 1) % size, (rank - 1) % size
    for turn in range(300):
        got = torch.empty(4)
        works = [dist.isend(torch.full((4,), float(turn)), after), dist.irecv(got, before)]
        for one in works:
            assert one is not None
            one.wait()
            one.get_future().value()
        same(got, torch.full((4,), float(turn)), turn)


def ordered_callbacks() -> None:
    """Callbacks start collectives of one size, and each pairs with its own on the other ranks."""
    size = dist.get_world_size()

    def again(turn: int) -> Callable[[Future], Future]:
        def callback(future: Future) -> Any:
            total = future.value()[0] + 100.0 * turn
            work = dist.all_reduce(total, async_op=True)
            assert work is not None
            return work.get_future().wait()

        return callback

    for _ in range(10):
        chains = []
        for turn in range(40):
            work = dist.all_reduce(torch.full((5,), float(turn)), async_op=True)
            assert work is not None
            chains.append(work.get_future().then(again(turn)))
        for turn, chain in enumerate(chains):
            expected = size * (turn * size + 100.0 * turn)
            same(chain.wait()[0], torch.full((5,), expected), turn)


class Layers(nn.Module):
    """Layers of one size, so that a wrong pairing of their gradients is no error of sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(40, 40, bias=False) for _ in range(24))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            batch = layer(batch).tanh()
        return batch


def gradients(hook: Any, state: Any) -> list[torch.Tensor]:
    """Gradients after five steps of DDP with a bucket for each layer."""
    model = DistributedDataParallel(Layers(), bucket_cap_mb=0.005)
    model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 40, generator=numbers)).square().sum().backward()
        optimizer.step()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def chained_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages by two collectives, the second of which a callback starts."""
    size = dist.get_world_size()

    def scaled(future: Future) -> torch.Tensor:
        work = dist.all_reduce(future.value()[0] / size, async_op=True)
        assert work is not None
        return work.get_future().wait()[0] / size

    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(scaled)


def hooks() -> None:
    """Hooks that start collectives in callbacks, with many buckets, as the plain average."""
    plain = gradients(default_hooks.allreduce_hook, None)
    for ours, expected in zip(gradients(chained_hook, None), plain, strict=True):
        torch.testing.assert_close(ours, expected)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=40, start_powerSGD_iter=2)
    for ours, expected in zip(gradients(powerSGD_hook.powerSGD_hook, state), plain, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)


def sparse() -> None:
    """all_reduce of sparse tensors, and DDP with an embedding of sparse gradients."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in (torch.float32, torch.int64):
        for dense in ((), (3,)):

            def part(
                of: int, kind: torch.dtype = kind, dense: tuple[int, ...] = dense
            ) -> torch.Tensor:
                rows = torch.arange(of + 1) * 2 % 7
                values = torch.full((of + 1, *dense), of + 1, dtype=kind)
                return torch.sparse_coo_tensor(rows[None], values, (7, *dense))

            ours = part(rank)
            dist.all_reduce(ours)
            expected = sum(
                (part(r).to_dense() for r in range(size)), torch.zeros(7, *dense, dtype=kind)
            )
            same(ours.to_dense(), expected, ("sparse", kind, dense))
    torch.manual_seed(1)
    table = nn.Embedding(10, 4, sparse=True)
    model = DistributedDataParallel(table)
    model(torch.tensor([rank, rank, 9])).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None and gradient.is_sparse
    counts = torch.zeros(10)
    for r in range(size):
        counts[r] += 2
        counts[9] += 1
    same(gradient.to_dense(), (counts / size)[:, None].expand(10, 4), "embedding")


def unequal() -> None:
    """Lists whose tensors differ in size, and coalesced gathers."""
    rank, size = dist.get_rank(), dist.get_world_size()
    outputs = [torch.empty(r + 2, 3) for r in range(size)]
    dist.all_gather(outputs, torch.full((rank + 2, 3), float(rank)))
    for r, one in enumerate(outputs):
        same(one, torch.full((r + 2, 3), float(r)), "all_gather")
    mine = torch.empty(rank + 1)
    dist.reduce_scatter(mine, [torch.full((r + 1,), float(rank + r)) for r in range(size)])
    same(mine, torch.full((rank + 1,), float(sum(r + rank for r in range(size)))), "reduce_scatter")
    lists = [[torch.empty(2), torch.empty(3, 2)] for _ in range(size)]
    dist.all_gather_coalesced(
        lists, [torch.full((2,), float(rank)), torch.full((3, 2), rank + 0.5)]
    )
    for r, (one, other) in enumerate(lists):
        same(one, torch.full((2,), float(r)), "coalesced")
        same(other, torch.full((3, 2), r + 0.5), "coalesced")


def refusals() -> None:
    """Types that cannot be added are named; a timeout of 0 is one."""
    for kind, name in ((torch.float8_e4m3fn, "Float8_e4m3fn"), (torch.uint16, "UInt16")):
        with pytest.raises(TypeError, match=f"{name} can be moved, not reduced"):
            dist.all_reduce(torch.zeros(4).to(kind))
    if dist.get_world_size() == 1:
        return
    group = dist.new_group(backend="smddp")
    options = dist.AllreduceOptions()
    options.timeout = timedelta(0)
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="waited 0 ms"):
            group._get_backend(torch.device("cpu")).allreduce([torch.ones(2)], options).wait()
    dist.barrier()


def signals() -> None:
    """Handlers of signals are what they were before the backend was imported, and after a call."""
    assert [signal.getsignal(number) for number in HANDLED] == BEFORE
    dist.all_reduce(torch.ones(100_000))
    assert [signal.getsignal(number) for number in HANDLED] == BEFORE
    with open("/proc/self/status") as status:
        caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    ours = {number for number in HANDLED if caught >> (number - 1) & 1}
    assert ours == {signal.SIGINT, signal.SIGTERM}, ours


def alarmed(handler: Callable[[], Any], call: Callable[[], Any]) -> None:
    """The call, with a signal shortly after its begin."""
    signal.signal(signal.SIGALRM, lambda _number, _frame: handler())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    call()


def handlers() -> None:
    """Handlers run while their rank waits in a call of any kind, which then goes on; what they
    raise ends the call. They may not call the group whose call they interrupt."""
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    ours, theirs = torch.ones(3), torch.ones(3)
    calls: dict[str, Callable[[dist.ProcessGroup], Any]] = {
        "all_reduce": lambda group: dist.all_reduce(ours, group=group),
        "barrier": dist.barrier,
        "wait": lambda group: dist.all_reduce(ours, group=group, async_op=True).wait(),
        "future": lambda group: dist.all_reduce(ours, group=group, async_op=True).get_future(),
        "recv": lambda group: (
            dist.recv(theirs, 1, group) if rank == 0 else dist.send(ours, 0, group)
        ),
    }
    group = dist.new_group(backend="smddp")
    for name, call in calls.items():
        if rank == 0:
            alarmed(lambda: store.set(f"handled {name}", ""), lambda: call(group))  # noqa: B023
        else:
            store.wait([f"handled {name}"])
            if name != "recv" or rank == 1:
                call(group)

    def nested() -> None:
        with pytest.raises(
            dist.DistBackendError, match="barrier was called by the handler of a sig"
        ):
            dist.barrier(group)
        store.set("nested", "")

    if rank == 0:
        alarmed(nested, lambda: dist.all_reduce(ours, group=group))
    else:
        store.wait(["nested"])
        dist.all_reduce(ours, group=group)

    def enough() -> None:
        store.set("enough", "")
        raise KeyboardInterrupt("enough")

    if rank == 0:
        with pytest.raises(KeyboardInterrupt, match="enough"):
            alarmed(enough, lambda: dist.barrier(group))
    else:
        store.wait(["enough"])
        with contextlib.suppress(dist.DistBackendError):
            dist.barrier(group)  # rank 0 had begun it, so it may come to its end
        with pytest.raises(dist.DistBackendError, match="rank 0 gave up call #"):
            dist.barrier(group)


def threadless() -> None:
    """Takes threads from rank 0: DDP goes on, and calls that cannot are told why. Its default stack
    is larger than all addresses, as good as a limit of processes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(backend="smddp")
    threads, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    before = ctypes.c_size_t()
    threads.pthread_getattr_default_np(attributes)
    threads.pthread_attr_getstacksize(attributes, ctypes.byref(before))
    if rank == 0:
        threads.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 47))
        threads.pthread_setattr_default_np(attributes)
    model = DistributedDataParallel(nn.Linear(3, 2), bucket_cap_mb=1e-5, process_group=group)
    for step in range(3):
        model.zero_grad()
        model(torch.full((1, 3), float(rank + step))).sum().backward()
        mean = step + (size - 1) / 2
        same(model.module.weight.grad, torch.full((2, 3), mean), f"step {step} without threads")
    if rank == 0:
        limits = r'smddp: no thread "smddp" could be made: .*pids\.max of the .*ulimit -u: '
        with pytest.raises(dist.DistBackendError, match=limits):
            dist.new_group([0], backend="smddp", use_local_synchronization=True)
        threads.pthread_attr_setstacksize(attributes, before)
        threads.pthread_setattr_default_np(attributes)


signal.signal(signal.SIGTERM, interrupted)
BEFORE = [signal.getsignal(number) for number in HANDLED]
import smdistributed.dataparallel.torch.torch_smddp  # noqa: E402, F401 - registers the backend

CHECKS = (signals, futures, ordered_callbacks, hooks, sparse, unequal, refusals, handlers,
          threadless)  # fmt: skip


def main() -> None:
    dist.init_process_group("smddp")
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        check()
        print(f"{check.__name__} hold", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
