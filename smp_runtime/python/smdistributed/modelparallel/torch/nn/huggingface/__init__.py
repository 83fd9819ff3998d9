# SPDX-License-Identifier: Apache-2.0
"""Names of state-dict entries, from Hugging Face's models to distributed ones and back."""

from smdistributed.modelparallel.torch.nn.huggingface import (
    bert as bert,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    gpt2 as gpt2,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    gptj as gptj,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    gptneo as gptneo,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    roberta as roberta,
)
