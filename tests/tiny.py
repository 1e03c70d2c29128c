"""A tokenizer that needs no network."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "run, walk: move along on foot; the class of this verb is motion",
    "rain, snow: fall from clouds; the class of this verb is weather",
    "Which class is this verb? A: body, change, contact, creation, emotion",
]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE as in GPT-2, so any text has tokens; 400 ids at most, ``<pad>`` is 0 and ``<eos>`` is 1."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>")
