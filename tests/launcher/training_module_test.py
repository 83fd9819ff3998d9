# SPDX-License-Identifier: Apache-2.0
"""Training modules: other frameworks' are called, PyTorch's has its tolerance for gloo."""

from __future__ import annotations

import pytest
from jobs import make_trees

PYTORCH = "sagemaker_pytorch_container.training:main"


def test_a_foreign_training_module_is_imported_and_called(folder, run):
    module = """
        import os, sys

        def main():
            print("called", sys.argv, os.environ["SM_HP_LR"], os.environ["SM_FRAMEWORK_MODULE"])
    """
    [tree] = make_trees(folder, module, name="framework.py", hyperparameter="lr=0.1")

    result = run(tree, SAGEMAKER_TRAINING_MODULE="framework:main", SAGEMAKER_PROGRAM="absent.py")

    assert result.code == 0, result.err
    assert result.out == "called ['train'] 0.1 framework:main\n"
    assert "is not one that this launcher stands in for" in result.err
    assert "Imported framework framework" in result.err
    assert tree.succeeded


def test_a_training_module_that_raises_fails_the_job(folder, run):
    [tree] = make_trees(folder, "def main(): raise KeyError('lost')", name="framework.py")

    assert run(tree, SAGEMAKER_TRAINING_MODULE="framework:main").code == 1
    assert "KeyError: 'lost'" in tree.failure[:1024]
    assert run(tree, SAGEMAKER_TRAINING_MODULE="no_such_module:main").code == 1


ABORTED_BY_GLOO = """
    import os, sys
    print("terminate called after throwing an instance of 'gloo::EnforceNotMet'", file=sys.stderr)
    sys.stderr.flush()
    os.abort()
"""


def test_an_abort_by_gloo_counts_as_the_end_in_pytorch_images(folder, run):
    [tree] = make_trees(folder, ABORTED_BY_GLOO)

    result = run(tree, SAGEMAKER_TRAINING_MODULE=PYTORCH)

    assert result.code == 0
    assert "Known exception" in result.err
    assert tree.succeeded
    assert not tree.failed


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        (ABORTED_BY_GLOO, {}),
        (
            ABORTED_BY_GLOO,
            {"SAGEMAKER_TRAINING_MODULE": PYTORCH, "SM_LAUNCH_TOLERATE_GLOO_ABORT": "0"},
        ),
        (
            ABORTED_BY_GLOO.replace("os.abort()", "sys.exit(1)"),
            {"SAGEMAKER_TRAINING_MODULE": PYTORCH},
        ),
    ],
)
def test_any_other_end_with_these_words_is_a_failure(folder, run, script, environment):
    [tree] = make_trees(folder, script)

    assert run(tree, **environment).code == 1
    assert tree.failed
