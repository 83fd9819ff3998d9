# SPDX-License-Identifier: Apache-2.0
"""Settings for a script or a model before it runs: smp.suggest and ``train --suggest``."""
