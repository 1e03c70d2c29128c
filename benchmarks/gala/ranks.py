"""What distance in the prompt does to attention: scores against gaps on random graphs, ranks against hops."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import networkx as nx
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.common import Row
from benchmarks.gala.methods import Methods, correct
from benchmarks.gala.tasks import Question
from pyg_textgraph.data import NEIGHBOR_LABELS, GraphPrompt, linearize
from pyg_textgraph.nn.gala import (
    average_neighbor_rank,
    centered,
    inverse_distance,
    node_attention_similarity,
    node_rank,
    option_scores,
    token_rank,
)
from pyg_textgraph.nn.gala.diagnostics.structure import first_tokens

SIZE = 30
P = (math.log(SIZE) + math.log(math.log(SIZE))) / SIZE
# three blocks of equal size and the same mean degree, five times denser inside
P_OUT = P * (SIZE - 1) / (5 * (SIZE / 3 - 1) + 2 * SIZE / 3)
FAMILIES: dict[str, Callable[[int], nx.Graph]] = {
    "ER": lambda seed: nx.gnp_random_graph(SIZE, P, seed=seed),
    "SBM": lambda seed: nx.random_partition_graph([SIZE // 3] * 3, 5 * P_OUT, P_OUT, seed=seed),
    "BA": lambda seed: nx.barabasi_albert_graph(SIZE, max(1, int(P * (SIZE - 1) / 2)), seed=seed),
}
GAP_BINS = 8


def balanced_pairs(hops: Tensor, generator: torch.Generator) -> Tensor:
    """As many pairs (2, P) at 1, 2 and 3 hops, drawn at random. Shapes: **hops** (N, N), row > column counts."""
    pairs = [(hops.tril() == d).nonzero() for d in (1, 2, 3)]
    fewest = min(len(x) for x in pairs)
    return torch.cat([x[torch.randperm(len(x), generator=generator)[:fewest]] for x in pairs]).T


def gaps(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, graphs: int) -> Iterator[Row]:
    """Mean attention score of node pairs by the gap between them, per family and order."""
    layer = model.config.get_text_config().num_hidden_layers // 2
    for family, make in FAMILIES.items():
        for order in ("random", "bfs", "rcm"):
            gap, score, generator = [], [], torch.Generator().manual_seed(0)
            for seed in tqdm(range(graphs), f"{family} {order}", leave=False):
                graph = from_networkx(make(seed))
                data = Data(edge_index=graph.edge_index, num_nodes=SIZE)
                prompt = linearize(data, tokenizer, NEIGHBOR_LABELS, order=order, seed=seed)
                similarity = node_attention_similarity(model, prompt, layer)
                similarity = similarity.where(similarity.isfinite(), similarity.T)  # the later node looks
                nearness = inverse_distance(data.edge_index, SIZE)
                hops = torch.where(nearness > 0, (1 / nearness).round(), 0)
                u, v = balanced_pairs(hops, generator)
                first = first_tokens(prompt)
                gap.append((first[u] - first[v]).abs())
                score.append(similarity[u, v])
            all_gaps, all_scores = torch.cat(gap), torch.cat(score)
            for part in all_gaps.argsort().tensor_split(GAP_BINS):
                yield {"case": f"attention by gap {family} order={order}", "metric": "score before softmax",
                       "value": float(all_scores[part].mean()), "gap": float(all_gaps[part].float().mean()),
                       "pairs": part.numel(), "graphs": graphs, "layer": layer}  # fmt: skip


def ranks(methods: Methods, count: int) -> Iterator[Row]:
    """Ranks of nodes by hops and correctness, and how fine-tuning changes neighbours' ranks."""
    questions = methods.test[:count]
    prompts = methods.prompts(questions)
    before, after = (_ranks(model, prompts) for model in (methods.model, methods.tuned))
    right, tuned_right = (_right(model, methods, questions, prompts) for model in (methods.model, methods.tuned))
    by_hop: dict[tuple[str, int], list[float]] = defaultdict(list)
    for prompt, rank, is_right in zip(prompts, before, right.tolist(), strict=True):
        nearness, of_node = inverse_distance(prompt.edge_index, prompt.num_nodes)[prompt.ego], node_rank(rank, prompt)
        for v in nearness.nonzero().view(-1).tolist():
            by_hop["correct" if is_right else "wrong", round(1 / float(nearness[v]))].append(float(of_node[v]))
    for (group, hop), values in sorted(by_hop.items()):
        yield {"case": f"rank at {hop} hops, {group}", "metric": "mean token rank",
               "value": sum(values) / len(values), "values": [round(x, 1) for x in values]}  # fmt: skip
    change = [average_neighbor_rank(b, p) - average_neighbor_rank(a, p)
              for a, b, p in zip(before, after, prompts, strict=True)]  # fmt: skip
    for group, chosen in (("corrected", ~right & tuned_right), ("stayed correct", right & tuned_right)):
        values = [x for x, keep in zip(change, chosen.tolist(), strict=True) if keep]
        if values:
            yield {"case": f"change of neighbours' rank by fine-tuning, {group}", "metric": "tokens",
                   "value": sum(values) / len(values), "values": [round(x, 1) for x in values]}  # fmt: skip


def _ranks(model: PreTrainedModel, prompts: Sequence[GraphPrompt]) -> list[Tensor]:
    return [token_rank(model, prompt) for prompt in tqdm(prompts, "ranks", leave=False)]


def _right(
    model: PreTrainedModel, methods: Methods, questions: Sequence[Question], prompts: Sequence[GraphPrompt]
) -> Tensor:
    scores = centered(option_scores(model, prompts, methods.questions.answers, progress="scoring"))
    return correct(questions, scores.argmax(-1).tolist())
