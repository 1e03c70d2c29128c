"""Text to pretrain on: documents, a tokenizer trained on them, and one long packed stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.datasets import WordNet, WordNetVerbs

PADDING, END = "<pad>", "<eos>"


def documents(texts: list[Path], dataset: Path | None, wordnet: Path | None) -> list[str]:
    """Documents of text files, of a saved Hugging Face data set, or of WordNet.

    Args:
        texts: Files, or folders that are searched for ``*.txt``; blank lines separate documents.
        dataset: A folder that ``Dataset.save_to_disk`` wrote, with a column ``text``.
        wordnet: A folder with WordNet's database; without one, the verbs that come with the package.
    """
    if texts:
        return [doc for path in texts for doc in _paragraphs(path)]
    if dataset is not None:
        from datasets import load_from_disk

        return list(load_from_disk(str(dataset))["text"])
    return list((WordNetVerbs() if wordnet is None else WordNet(wordnet))[0].text)


def _paragraphs(path: Path) -> Iterator[str]:
    for file in sorted(path.rglob("*.txt")) if path.is_dir() else [path]:
        yield from (part.strip() for part in file.read_text(encoding="utf-8").split("\n\n") if part.strip())


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer; id 0 is padding and 1 ends a document."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PADDING, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token=PADDING, eos_token=END)


def packed(texts: list[str], tokenizer: PreTrainedTokenizerFast, length: int, seed: int = 0) -> Tensor:
    """All documents, shuffled and one after the other, as sequences that start with a padding token (m, length)."""
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    ids = tokenizer([texts[i] for i in order], add_special_tokens=False).input_ids
    stream = torch.tensor([token for doc in ids for token in (*doc, tokenizer.eos_token_id)])
    rows = stream[: len(stream) // (length - 1) * (length - 1)].view(-1, length - 1)
    return torch.nn.functional.pad(rows, (1, 0), value=tokenizer.pad_token_id)
