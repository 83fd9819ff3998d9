# SPDX-License-Identifier: Apache-2.0
"""Settings for a training script before it runs: ``python -m smdistributed.suggest SCRIPT ARG…``,
which ``train --suggest`` starts for a job tree."""
