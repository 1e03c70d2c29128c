import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_tokenizer

# small tensors: threads would only wait for each other
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()
