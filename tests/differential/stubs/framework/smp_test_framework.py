# SPDX-License-Identifier: Apache-2.0
"""A training module of another framework, as SAGEMAKER_TRAINING_MODULE names it."""

import os
import runpy


def main():
    runpy.run_path(os.environ["SMP_RECORDER"])["main"]("framework")
