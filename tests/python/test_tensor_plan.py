# SPDX-License-Identifier: Apache-2.0
"""Annotated modules that would be replaced, and reasons given for the others."""

from __future__ import annotations

import pytest
import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch._annotations.tensor_registry import (
    Registration,
    registration_of,
)
from smdistributed.modelparallel.torch._tensor.tensor_plan import lines, plan_tensor_parallelism
from smdistributed.modelparallel.torch.exceptions import (
    SMPTensorParallelError,
    SMPValidationError,
)
from torch import nn


class Split(nn.Module):
    divided_sizes = ("width",)

    def __init__(self, width, depth=1, *, fused=False):
        super().__init__()


class Plain(nn.Module):
    def __init__(self, width, depth=1):
        super().__init__()
        self.weight = nn.Parameter(nn.init.ones_(nn.Linear(width, depth).weight.detach()))


class Block(nn.Module):
    """Another class that is registered, with a registered one inside."""

    def __init__(self, width):
        super().__init__()
        self.inner = Plain(width)


def _block_sizes(width):
    return (width,), {}


smp.tp_register_with_module(Plain, Split)
smp.tp_register_with_module(Block, Split, init_hook=_block_sizes)


def _plan(root, degree=2):
    return plan_tensor_parallelism(root, registration_of, degree)


def _names(plan):
    return [one.name for one in plan.replacements]


def test_only_what_was_made_in_the_context_is_replaced():
    with smp.tensor_parallelism():
        inside = Plain(4)
    model = nn.Sequential(inside, Plain(4))

    assert _names(_plan(model)) == ["0"]


def test_the_innermost_context_wins():
    with smp.tensor_parallelism():
        first = Plain(4)
        with smp.tensor_parallelism(enabled=False):
            second = Plain(4)
        third = Plain(4)

    assert _names(_plan(nn.Sequential(first, second, third))) == ["0", "2"]


def test_the_outermost_module_wins():
    with smp.tensor_parallelism():
        model = nn.Sequential(Block(4), Plain(4))

    assert _names(_plan(model)) == ["0", "1"]


def test_the_model_itself_may_be_replaced():
    model = Block(4)
    smp.set_tensor_parallelism(model)

    assert _names(_plan(model)) == ["(root)"]


def test_a_mark_set_on_a_model_holds_for_what_is_put_there_later():
    model = nn.Sequential(nn.Identity())
    smp.set_tensor_parallelism(model)
    model[0] = Plain(4)

    assert _names(_plan(model)) == ["0"]


def test_a_mark_set_later_overrides_those_below():
    with smp.tensor_parallelism():
        model = nn.Sequential(Plain(4), Plain(4))
    smp.set_tensor_parallelism(model, enabled=False)
    smp.set_tensor_parallelism(model[1])

    assert _names(_plan(model)) == ["1"]


def test_sizes_that_do_not_divide_leave_a_module_with_the_reason():
    model = nn.Sequential(Plain(6), Plain(8))
    smp.set_tensor_parallelism(model)

    plan = _plan(model, degree=4)

    assert _names(plan) == ["1"]
    assert [(left.name, left.reason, left.misfit) for left in plan.left] == [
        ("0", "its width is 6, which 4 tensor ranks do not divide", Split)
    ]


def test_below_a_module_that_stays_the_search_goes_on():
    model = Block(6)
    model.inner = Plain(4)
    smp.set_tensor_parallelism(model)

    plan = _plan(model, degree=4)

    assert _names(plan) == ["inner"]
    assert plan.left[0].name == "(root)"


def test_shared_weights_leave_both_modules_with_the_reason():
    first, second, third = Plain(4), Plain(4), Plain(4)
    second.weight = first.weight
    model = nn.Sequential(first, second, third)
    smp.set_tensor_parallelism(model)

    plan = _plan(model)

    assert _names(plan) == ["2"]
    assert [(left.name, left.reason) for left in plan.left] == [
        (name, "it shares weight with a module outside of it") for name in ("0", "1")
    ]


def test_weights_shared_inside_do_not_matter():
    model = Block(4)
    model.twin = Plain(4)
    model.twin.weight = model.inner.weight
    smp.set_tensor_parallelism(model)

    assert _names(_plan(model)) == ["(root)"]


def test_a_module_used_twice_is_planned_once():
    layer = Plain(4)
    model = nn.Sequential(layer, layer)
    smp.set_tensor_parallelism(model)

    assert _names(_plan(model)) == ["0"]


def test_keywords_override_arguments_of_the_distributed_class():
    with smp.tensor_parallelism(fused=True, depth=3, zero_init=True):
        model = Plain(4)

    plan = _plan(model)

    assert plan.replacements[0].args == (4,)
    assert plan.replacements[0].kwargs == {"fused": True, "depth": 3}
    assert plan.unknown_keywords == {"zero_init"}


def test_a_subclass_is_another_class():
    class Subclass(Plain):
        pass

    model = nn.Sequential(Subclass(4))
    smp.set_tensor_parallelism(model)

    assert _names(_plan(model)) == []


def test_a_module_made_before_its_class_was_registered_says_so():
    class Late(nn.Module):
        pass

    model = nn.Sequential(Late())
    smp.tp_register_with_module(Late, Split)
    smp.set_tensor_parallelism(model)

    assert _plan(model).left[0].reason == "it was made before Late was registered"


def _with_hook(hook):
    registration = Registration(Split, init_hook=hook)
    model = nn.Sequential(Plain(4))
    smp.set_tensor_parallelism(model)
    return plan_tensor_parallelism(
        model, lambda module: registration if isinstance(module, Plain) else None, 2
    )


def test_an_init_hook_that_declines_leaves_the_module_and_the_log_says_so():
    plan = _with_hook(lambda width, depth=1: None)

    assert plan.replacements == []
    assert list(lines(plan)) == [
        "tensor parallelism: left as it is: 0, because the init_hook of Plain declined"
    ]


@pytest.mark.parametrize(
    "nonsense", [7, "ab", (1, 2), ((4,), None), ((4,), {}, {}), {"width": 4}, ((4,), {1: 2})]
)
def test_an_init_hook_that_returns_nonsense_is_an_error_that_names_module_and_hook(nonsense):
    def my_hook(width, depth=1):
        return nonsense

    with pytest.raises(
        SMPTensorParallelError, match=r"module 0: init_hook .*my_hook.*returned"
    ) as e:
        _with_hook(my_hook)
    assert repr(nonsense) in str(e.value)


def test_arguments_that_do_not_fit_the_distributed_class_are_an_error():
    with pytest.raises(SMPTensorParallelError, match=r"module 0: .*colour.* do not fit Split"):
        _with_hook(lambda width, depth=1: ((width,), {"colour": 3}))


def test_an_init_hook_with_another_signature_is_an_error():
    with pytest.raises(SMPTensorParallelError, match=r"module 0: .*TypeError.*positional argument"):
        _with_hook(lambda: ((4,), {}))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((3, Split), "got 3 for module_cls"),
        ((Plain, "Split"), "got 'Split' for dist_module"),
        ((Plain, Split, 5), "got 5 for init_hook"),
    ],
)
def test_registrations_are_checked(arguments, said):
    with pytest.raises(SMPValidationError, match=said):
        smp.tp_register_with_module(*arguments)


def test_the_decorator_leaves_the_class_as_it_is():
    @smp.tp_register(Split, init_hook=lambda: ((2,), {}))
    class Mine(nn.Module):
        """Mine."""

    model = Mine()
    smp.set_tensor_parallelism(model)

    assert (Mine.__name__, Mine.__doc__) == ("Mine", "Mine.")
    assert _plan(model).replacements[0].args == (2,)


def test_many_modules_with_one_reason_are_one_line():
    model = nn.Sequential(*(Plain(6) for _ in range(5)), Plain(4))
    smp.set_tensor_parallelism(model, colour=1)

    assert list(lines(_plan(model, 4))) == [
        "tensor parallelism: Split replaces 5",
        "tensor parallelism: left as it is: 0, 1, 2 and 2 more, because its width is 6, which 4 "
        "tensor ranks do not divide",
        "tensor parallelism: keyword colour is ignored, for none of the distributed modules "
        "takes it",
    ]


def test_set_tensor_parallelism_wants_a_module():
    with pytest.raises(SMPValidationError, match=r"got int; expected a torch\.nn\.Module"):
        smp.set_tensor_parallelism(3)
