from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data import TextAttributedData, add_question_node
from pyg_textgraph.data.checks import checked_edges
from pyg_textgraph.transforms.incidence_graph import IncidenceGraph


@functional_transform("retrieve_subgraph")
class RetrieveSubgraph(BaseTransform):
    r"""Turns a question about a knowledge graph into a small text graph that asks it (functional name:
    :obj:`retrieve_subgraph`).

    What :class:`~pyg_textgraph.nn.GTLM` reads where PyG's ``GRetriever`` gets a retrieved subgraph. The edge and the
    nodes whose texts are most like the question, then further edges, are joined into one connected part, each by a
    shortest path to what is there already (direction does not count; of parallel edges the one most like the question);
    what is too far away is left out. Edges then become nodes that carry their texts (:class:`IncidenceGraph`), and the
    question becomes a node that points at those of the most alike nodes that are in the part, or at all if none is.

    G-Retriever (`He et al., 2024 <https://arxiv.org/abs/2402.07630>`_) solves a prize-collecting Steiner tree instead,
    which needs ``pcst_fast``; this needs nothing beside SciPy.

    The knowledge graph is embedded once, when the transform is made; a call embeds the question. Other attributes of
    the input, such as ``answer``, stay.

    Args:
        graph: The knowledge graph, with ``text`` (one string per node), ``edge_index`` and ``text_edges`` (one string
            per edge): names of relations or, better for searching and reading, whole sentences.
        embed: Gives one vector per text, such as the ``encode`` of PyG's or sentence-transformers'
            ``SentenceTransformer``.
        num_nodes: How many of the most alike nodes are looked for.
        num_edges: How many of the most alike edges are looked for.
        max_path: The most edges that join one of them to the rest.

    Shapes:
        - **embed** returns (number of texts, d)
        - **data.retrieved** (n,) and **data.retrieved_triples** (m,): which nodes and edges of **graph** were
          retrieved, ascending; these nodes are the first in the result, in this order

    Raises:
        ValueError: If **graph** has no edges or not one text per node and edge, or an input no ``question``.

    Example:
        >>> encode = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2").encode
        >>> prepare = T.Compose([RetrieveSubgraph(graph, encode), TokenizeQuestion(tokenizer), AddSPD(8)])
        >>> prepare(Data(question="What does snoring entail?", answer="sleeping"))
    """

    def __init__(
        self,
        graph: Data,
        embed: Callable[[list[str]], Tensor],
        num_nodes: int = 3,
        num_edges: int = 5,
        max_path: int = 2,
    ) -> None:
        if graph.get("edge_index") is None:
            raise ValueError("RetrieveSubgraph: 'graph' has no 'edge_index'")
        self.text = _texts(graph, "text", int(graph.num_nodes or 0))
        self.text_edges = _texts(graph, "text_edges", graph.num_edges)
        self.ends = checked_edges(graph.edge_index, len(self.text), "RetrieveSubgraph")
        if not self.text_edges:
            raise ValueError("RetrieveSubgraph: 'graph' has no edges, expected a knowledge graph")
        for name, value, least in (("num_nodes", num_nodes, 1), ("num_edges", num_edges, 0), ("max_path", max_path, 0)):
            if value < least:
                raise ValueError(f"RetrieveSubgraph: '{name}' is {value}, expected at least {least}")
        self.embed, self.num_nodes, self.num_edges, self.max_path = embed, num_nodes, num_edges, max_path
        names = {name: i for i, name in enumerate(dict.fromkeys(self.text_edges))}
        self.node_vectors = self._embed(self.text)
        self.relation_vectors = self._embed(list(names))
        self._relation = torch.tensor([names[name] for name in self.text_edges])  # [E], a row of relation_vectors
        n = len(self.text)
        self._links = csr_array((np.ones(len(self.text_edges)), tuple(self.ends)), shape=(n, n))
        self._between: dict[tuple[int, int], list[int]] = {}
        for edge, (u, v) in enumerate(self.ends.T.tolist()):
            self._between.setdefault((min(u, v), max(u, v)), []).append(edge)

    def forward(self, data: Data) -> TextAttributedData:
        question = data.get("question")
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"RetrieveSubgraph: 'question' is {question!r}, expected a text")
        vector = self._embed([question])
        like_node = torch.cosine_similarity(vector, self.node_vectors)
        like_edge = torch.cosine_similarity(vector, self.relation_vectors)[self._relation]
        best = like_node.topk(min(self.num_nodes, len(self.text))).indices
        triples = like_edge.topk(min(self.num_edges, len(self.text_edges))).indices
        nodes, edges = self._connect(best.tolist(), triples.tolist(), like_edge.tolist())
        ends = torch.from_numpy(self.ends[:, edges.numpy()]).long().contiguous()
        part = TextAttributedData(
            text=[self.text[i] for i in nodes.tolist()],
            edge_index=torch.searchsorted(nodes, ends),
            text_edges=[self.text_edges[i] for i in edges.tolist()],
        )
        mentions = torch.isin(nodes, best).nonzero().view(-1)
        out = add_question_node(IncidenceGraph()(part), question, mentions if mentions.numel() else None)
        for key, value in data:
            if key not in out:
                out[key] = value
        out.retrieved, out.retrieved_triples = nodes, edges
        return out

    def _embed(self, texts: list[str]) -> Tensor:
        x = torch.as_tensor(self.embed(texts)).detach().float().cpu()
        if x.dim() != 2 or len(x) != len(texts):
            raise ValueError(
                f"RetrieveSubgraph: 'embed' gave {tuple(x.shape)} for {len(texts)} texts, expected ({len(texts)}, d)"
            )
        return x

    def _connect(self, nodes: list[int], edges: list[int], like_edge: list[float]) -> tuple[Tensor, Tensor]:
        """Nodes and edges of one connected part, ascending: the first edge (or node), and what can be joined to it."""
        first = edges[:1]
        part = set(self.ends[:, first].ravel().tolist() or nodes[:1])
        chosen = set(first)
        for edge, wanted in [*((None, [node]) for node in nodes), *((e, self.ends[:, e].tolist()) for e in edges[1:])]:
            distance, before, _ = dijkstra(
                self._links, directed=False, indices=sorted(part), unweighted=True, min_only=True, limit=self.max_path,
                return_predecessors=True,
            )  # fmt: skip
            node = min(wanted, key=lambda i: distance[i])
            if not np.isfinite(distance[node]):
                continue
            while node not in part:
                part.add(node)
                step = int(before[node])
                between = self._between[min(node, step), max(node, step)]
                chosen.add(max(between, key=lambda e: like_edge[e]))
                node = step
            if edge is not None:
                part.update(wanted)
                chosen.add(edge)
        return torch.tensor(sorted(part)), torch.tensor(sorted(chosen), dtype=torch.long)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({len(self.text)} nodes, {len(self.text_edges)} edges, "
            f"num_nodes={self.num_nodes}, num_edges={self.num_edges}, max_path={self.max_path})"
        )


def _texts(graph: Data, key: str, expected: int) -> list[str]:
    found: Sequence[str] | None = graph.get(key)
    if found is None or len(found) != expected:
        got = "is missing" if found is None else f"holds {len(found)} texts"
        raise ValueError(f"RetrieveSubgraph: '{key}' {got}, expected {expected} texts")
    return list(found)
