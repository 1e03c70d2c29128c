import pytest
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()
