# SPDX-License-Identifier: Apache-2.0
"""Errors, values and counters that the extension module carries over from C++."""

import threading

import pytest
from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPInternalError


def tree_of_two() -> _runtime.ModuleTree:
    tree = _runtime.ModuleTree()
    weight = tree.add_parameter("fc.weight", 8)
    tree.add_module("")
    tree.add_module("fc", parent=0, parameters=[weight], pin=1)
    return tree


def test_kinds_of_errors_are_exceptions_of_the_library() -> None:
    with pytest.raises(SMPConfigError, match="module fc is put on partition 1"):
        _runtime.assign_manual(tree_of_two(), 1, 0)
    with pytest.raises(SMPInternalError, match="please report it"):
        tree_of_two().add_module("fc", parent=0)


def test_assignments_are_values() -> None:
    tree = tree_of_two()

    assignment = _runtime.assign_manual(tree, 2, 0)

    assert assignment.partition_of == {"": 0, "fc": 1}
    assert assignment["fc"] == 1
    again = _runtime.Assignment.from_json(assignment.to_json(), "here")
    assert again.to_json() == assignment.to_json()
    assert assignment.log_line(tree).startswith("Partition assignments: (root)=0 fc=1")


def test_settings_are_attributes() -> None:
    config = _runtime.make_parallel_config("partitions=2,ddp=1", "env", "{}", "dict")

    assert (config.partitions, config.ddp, config.ddp_port) == (2, True, None)
    with pytest.raises(AttributeError, match="no attribute 'partition'"):
        _ = config.partition  # type: ignore[attr-defined]
    with pytest.raises(SMPConfigError, match=r"smp\.state\.cfg: partitions is 0; expected"):
        config.partitions = 0


def test_the_heap_counts_what_is_allocated_and_not_freed() -> None:
    # The larger size is mapped by itself, the smaller one is cut from an arena.
    for size in (100_000, 100_000_000):
        before = _runtime.heap_bytes()
        block = bytearray(size)
        with_block = _runtime.heap_bytes()
        del block

        assert size <= with_block - before < size + 10_000
        assert _runtime.heap_bytes() - before < 10_000


def test_the_heap_counts_other_threads() -> None:
    blocks: list[bytearray] = []
    before = _runtime.heap_bytes()
    thread = threading.Thread(target=lambda: blocks.extend(bytearray(100_000) for _ in range(50)))
    thread.start()
    thread.join()

    # Less what others of torch's threads free meanwhile.
    assert _runtime.heap_bytes() - before >= 4_000_000
