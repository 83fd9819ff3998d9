# SPDX-License-Identifier: Apache-2.0
"""The check before the start of a job: ``python -m smdistributed.check``.

``train`` runs it as it will run the script, with ``SM_LAUNCH_CHECK=1`` before it and with ``train
--check`` in its place: what ranks measure here is what the script will find.
"""
