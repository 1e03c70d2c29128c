"""Exact search for the largest inner products."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

IndexBackend = Literal["torch", "faiss"]


class TextIndex:
    """Embeddings of nodes, to be searched.

    Args:
        embedding: One row per node.
        node: Which node each row is; ascending.
        backend: ``"torch"``, or ``"faiss"`` where it is installed; both are exact.

    Shapes: **embedding** (n, d); **node** (n,)

    Raises:
        ImportError: If faiss is asked for and not installed.
    """

    def __init__(self, embedding: Tensor, node: Tensor, backend: IndexBackend = "torch") -> None:
        self.embedding, self.node = embedding, node
        self._faiss: Any = None
        if backend == "faiss":
            try:
                import faiss
            except ImportError as error:
                raise ImportError("TextIndex: faiss is not installed; pip install 'pyg-textgraph[faiss]'") from error
            self._faiss = faiss.IndexFlatIP(embedding.size(1))
            self._faiss.add(embedding.float().cpu().numpy())

    def __len__(self) -> int:
        return self.node.numel()

    def of(self, nodes: Tensor) -> Tensor:
        """The embeddings of nodes. Shapes: (m,) -> (m, d).

        Raises:
            KeyError: If a node is not in the index.
        """
        place = torch.searchsorted(self.node, nodes).clamp(max=max(0, len(self) - 1))
        missing = self.node[place] != nodes if len(self) else torch.ones_like(nodes, dtype=torch.bool)
        if missing.any():
            raise KeyError(f"TextIndex: node {int(nodes[missing][0])} is not among the {len(self)} in the index")
        return self.embedding[place]

    def search(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The **k** best nodes for each query, best first.

        Shapes:
            - **query** (m, d)
            - **returns** scores and nodes (m, k); fewer columns if the index is smaller
        """
        k = min(k, len(self))
        if self._faiss is not None:
            score, place = (torch.from_numpy(x) for x in self._faiss.search(query.float().cpu().numpy(), k))
        else:
            score, place = (query @ self.embedding.T).topk(k, dim=-1)
        return score, self.node[place]
