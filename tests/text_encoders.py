"""Tiny text encoders of every family, a tokenizer for them, and graphs to read."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from pyg_textgraph.data import TextAttributedData

WORDS = [f"w{i}" for i in range(40)]
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_SMALL = {
    "vocab_size": len(WORDS) + len(SPECIAL), "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24,
    "num_hidden_layers": 3, "max_position_embeddings": 40, "pad_token_id": 0, "initializer_range": 0.3,
}  # fmt: skip
FAMILIES = ("bert", "roberta", "electra", "mpnet", "modernbert")


def tiny_encoder(
    family: str = "bert", dtype: torch.dtype = torch.float64, seed: int = 0, **config: object
) -> PreTrainedModel:
    """A random encoder of three layers; weights large enough for attention to be far from uniform."""
    torch.manual_seed(seed)
    model = {
        "bert": lambda: BertModel(BertConfig(**_SMALL | config)),
        "roberta": lambda: RobertaModel(RobertaConfig(**_SMALL | config)),
        "electra": lambda: ElectraModel(ElectraConfig(**_SMALL | {"embedding_size": 8} | config)),
        "mpnet": lambda: MPNetModel(MPNetConfig(**_SMALL | config)),
        "modernbert": lambda: ModernBertModel(
            ModernBertConfig(
                **_SMALL | {"local_attention": 4, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3,
                            "bos_token_id": None, "eos_token_id": None, "attention_bias": True} | config
            )
        ),
    }[family]()  # fmt: skip
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(std=0.2)
    return model.to(dtype).eval()


def tiny_text_tokenizer() -> PreTrainedTokenizerFast:
    vocab = {word: i for i, word in enumerate([*SPECIAL.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


def text_graph(num_nodes: int = 9, num_edges: int = 14, seed: int = 0, longest: int = 7) -> TextAttributedData:
    """Random texts of unequal lengths on a random graph; the last node has no neighbours."""
    generator = torch.Generator().manual_seed(seed)
    length = torch.randint(1, longest, (num_nodes,), generator=generator).tolist()
    words = [torch.randint(len(WORDS), (n,), generator=generator).tolist() for n in length]
    edge_index = torch.randint(num_nodes - 1, (2, num_edges), generator=generator)
    return TextAttributedData(text=[" ".join(WORDS[i] for i in some) for some in words], edge_index=edge_index)


def randomize(parameters: dict[str, Tensor], seed: int = 1, std: float = 0.3) -> None:
    """Random values for what starts as zeros or an identity."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in parameters.values():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * std)
