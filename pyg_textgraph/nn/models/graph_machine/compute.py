"""How much arithmetic it takes to train a Graph Machine."""

from typing import NamedTuple

from pyg_textgraph.nn.models.graph_machine.config import GraphMachineConfig


class Compute(NamedTuple):
    """Floating-point operations: all of them, and those of attention and referrals with their projections."""

    total: float
    attention: float


def key_access(config: GraphMachineConfig, context: int) -> float:
    """Keys that a sparse layer reads per token and head, as a share of what causal attention reads on average."""
    return config.budgets[3] / ((context + 1) / 2)


def training_compute(config: GraphMachineConfig, tokens: int, context: int) -> Compute:
    """Operations of a training run, counted as the paper does (GM-2, arXiv 2609.02881, table 2).

    Six per weight and token (the embedding counts once, as the output head), and three times the forward cost of
    attention, refresh scores and referral products. Softmax and mixing are not counted.

    Args:
        config: The model.
        tokens: Tokens in all.
        context: Length of a sequence.
    """
    d, k, dh = config.hidden_size, config.num_edges, config.head_dim
    inner, keys = config.num_attention_heads * dh, config.num_key_value_heads * dh
    _, s2, s3, s4 = config.budgets
    weights, products = 0, 0.0  # of attention and referrals
    for layer, sparse in enumerate(config.sparse_layers):
        weights += d * (2 * inner + 2 * keys) + d + 2 * dh  # with the norms before and inside
        if not sparse:
            products += 4 * inner * (context + 1) / 2 + 2 * config.dense_refresh * dh * context
            continue
        groups = config.num_key_value_heads
        weights += d * (k + groups + config.num_attention_heads + groups * k)
        products += 4 * inner * s4
        for counts in config.refresh_counts(layer):
            weights += d * (3 * k + 2 * k * (k + sum(counts)))
            products += k * s2 * s3
    feed_forward = 3 * d * config.intermediate_size + d
    others = config.vocab_size * d + config.num_hidden_layers * feed_forward + d
    attention = tokens * (6 * weights + 3 * products)
    return Compute(attention + tokens * 6 * others, attention)
