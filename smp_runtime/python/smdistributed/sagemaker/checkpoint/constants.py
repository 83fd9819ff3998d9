# SPDX-License-Identifier: Apache-2.0
"""Keys that scripts leave out when they look at what a checkpoint holds.

>>> SMP_IS_PARTIAL_KEY
'smp_is_partial'
"""

SMP_IS_PARTIAL_KEY = "smp_is_partial"
SMP_IS_LOAD_INFO_KEY = "smp_is_load_info"
