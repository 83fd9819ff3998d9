# SPDX-License-Identifier: Apache-2.0
"""What of this rank's steps is told, and to whom."""

from __future__ import annotations

from dataclasses import dataclass

from smdistributed import _runtime
from smdistributed.modelparallel.torch._report.model_flops import ModelFlops
from smdistributed.modelparallel.torch._report.optimizer_times import OptimizerTimes


@dataclass(frozen=True)
class Reports:
    """None stands for what nobody asks for."""

    meter: _runtime.StepMeter | None = None
    """The first rank's."""
    replica_loss: _runtime.ReplicaLoss | None = None
    """Of ranks that take part in the first one's reports."""
    records: _runtime.StepRecords | None = None
    flops: ModelFlops | None = None
    optimizers: OptimizerTimes | None = None

    def close(self) -> None:
        """Tells what is left."""
        if self.optimizers is not None:
            self.optimizers.close()
        if self.meter is not None:
            self.meter.close()
