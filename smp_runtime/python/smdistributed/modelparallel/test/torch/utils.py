# SPDX-License-Identifier: Apache-2.0
"""Names that a published script imports and does not call."""

from smdistributed.modelparallel.torch.not_yet import unavailable_function

verify = unavailable_function("verify", "the test helper verify")
dump_model = unavailable_function("dump_model", "the test helper dump_model")
