"""Random text graphs with all features, and GTLMs whose biases are not zero."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch_geometric.transforms as T
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pyg_textgraph.data import TextAttributedData, answer_ids, append_to_target
from pyg_textgraph.nn import GTLM
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD

FEATURES = T.Compose([AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)])


def text_graph(num_nodes: int, seed: int, max_tokens: int = 9, vocabulary: int = 101) -> TextAttributedData:
    generator = torch.Generator().manual_seed(seed)
    num_tokens = torch.randint(1, max_tokens, (num_nodes,), generator=generator)
    target = int(torch.randint(0, num_nodes, (1,), generator=generator))
    num_tokens[target] = max_tokens + 3  # longer than the families' window
    return FEATURES(
        TextAttributedData(
            edge_index=torch.randint(0, num_nodes, (2, 2 * num_nodes), generator=generator),
            input_ids=torch.randint(3, vocabulary, (int(num_tokens.sum()),), generator=generator),
            num_tokens=num_tokens,
            target=target,
        )
    )


def graphs_with_answers(
    tokenizer: PreTrainedTokenizerBase, names: Sequence[str], size: int
) -> list[TextAttributedData]:
    """Graphs of three to five nodes; the target's last token before the answer tells which of the names it is."""
    graphs = []
    for i in range(size):
        which = i % len(names)
        answer = answer_ids(tokenizer, names[which])
        graph = append_to_target(text_graph(3 + i % 3, i), torch.tensor([60 + which]))
        graph = append_to_target(graph, answer, answer.numel())
        graph.y = torch.tensor([which])
        graphs.append(graph)
    return graphs


def single_node(num_tokens: int, vocabulary: int = 101, seed: int = 0) -> TextAttributedData:
    generator = torch.Generator().manual_seed(seed)
    return FEATURES(
        TextAttributedData(
            edge_index=torch.empty(2, 0, dtype=torch.long),
            input_ids=torch.randint(3, vocabulary, (num_tokens,), generator=generator),
            num_tokens=torch.tensor([num_tokens]),
            target=0,
        )
    )


def permuted(data: TextAttributedData, order: torch.Tensor) -> TextAttributedData:
    """The same graph with its nodes in another order; features computed anew."""
    place, ptr = order.argsort(), data.token_ptr
    return FEATURES(
        TextAttributedData(
            edge_index=place[data.edge_index],
            input_ids=torch.cat([data.input_ids[ptr[n] : ptr[n + 1]] for n in order.tolist()]),
            num_tokens=data.num_tokens[order],
            target=int(place[int(data.target)]),
        )
    )


def gtlm(base: PreTrainedModel, std: float = 0.5, **kwargs: object) -> GTLM:
    """A GTLM around a copy of a decoder, with random biases, in evaluation mode."""
    model = GTLM(copy.deepcopy(base), **kwargs).eval()  # type: ignore[arg-type]
    randomize(model, std)
    return model


def randomize(model: GTLM, std: float, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.graph_bias.parameters():
            parameter.normal_(std=std, generator=generator)
