# SPDX-License-Identifier: Apache-2.0
"""Files of checkpoints, whoever wrote them, looked at without a job."""
