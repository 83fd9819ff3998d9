# SPDX-License-Identifier: Apache-2.0
"""Runs a script of SMP v2 as a rank of mpirun's, with the variables that torchrun gives:

    run_smp_v2.py RESULTS SCRIPT ARGUMENTS...

RESULTS is a JSON file of what the first rank has logged: losses and norms of gradients by step, and
losses of validation. With the variable PLAIN_TORCH names that the script imports from
torch.sagemaker are those of plain_torch.py, beside this file. Packages that scripts import and do
not use come from the folder `shim`, where they are not installed.
"""

import json
import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def listen(logging_utils):
    """Numbers as the script logs them, and not as its text rounds them."""
    found = {"steps": [], "validation": []}
    log_step, log_validation = (
        logging_utils.log_train_metrics, logging_utils.log_and_write_eval_metrics,
    )  # fmt: skip

    def step(args, total_steps, display_step, loss, throughput, flops, rate, norm, *more):
        found["steps"].append([display_step, loss, rate, float(norm)])
        log_step(args, total_steps, display_step, loss, throughput, flops, rate, norm, *more)

    def validation(writers, display_step, loss, perplexity):
        found["validation"].append([display_step, loss])
        log_validation(writers, display_step, loss, perplexity)

    logging_utils.log_train_metrics = step
    logging_utils.log_and_write_eval_metrics = validation
    return found


def main():
    for name, given in (("RANK", "RANK"), ("WORLD_SIZE", "SIZE"), ("LOCAL_RANK", "LOCAL_RANK"),
                        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")):  # fmt: skip
        os.environ[name] = os.environ[f"OMPI_COMM_WORLD_{given}"]
    _, results, script, *arguments = sys.argv
    sys.path.append(str(HERE / "shim"))
    if "PLAIN_TORCH" in os.environ:
        import plain_torch  # noqa: PLC0415 - not where scripts are to find ours

        plain_torch.install()
    else:
        import _smp_torch_sagemaker  # noqa: PLC0415 - as smp_torch_sagemaker.pth does

        _smp_torch_sagemaker.install()
    sys.path.insert(0, str(Path(script).parent))
    import logging_utils  # noqa: PLC0415 - the script's

    found = listen(logging_utils)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    if os.environ["RANK"] == "0":
        Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
