import pytest
import torch
from hypothesis import settings
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_tokenizer

# small tensors: threads would only wait for each other
torch.set_num_threads(1)
# a busy machine is no reason to fail
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()
