# SPDX-License-Identifier: Apache-2.0
"""Names of state-dict entries, from Hugging Face's models to distributed ones and back."""

from smdistributed.modelparallel.torch.nn.huggingface import (
    bert as bert,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    gemma as gemma,
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
    llama as llama,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    mistral as mistral,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    qwen2 as qwen2,
)
from smdistributed.modelparallel.torch.nn.huggingface import (
    roberta as roberta,
)
