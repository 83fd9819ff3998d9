# SPDX-License-Identifier: Apache-2.0
"""Open successor of SageMaker's distributed training libraries; not made by Amazon."""
