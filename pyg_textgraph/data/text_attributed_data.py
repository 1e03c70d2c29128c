"""One text graph, or a batch of them, in PyG's own containers."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.utils import select, to_edge_index

from pyg_textgraph.data.checks import check_one_graph

TOKEN_KEYS = ("input_ids", "labels")
PAIR_KEYS = ("spd", "rrwp", "pair_index", "magnetic_eigvals", "magnetic_eigvecs", "magnetic_num_eigvals")
EDGE_TEXT_KEYS = ("text_edges", "edge_text")
TEXT_KEYS = ("text", "text_nodes", *EDGE_TEXT_KEYS)
# PyG guesses node and edge attributes by size, which misfiles these where sizes happen to be equal
_OF_THE_GRAPH = (*TOKEN_KEYS, *PAIR_KEYS, "target", "class_names", "actions", "mentions")
_NEVER_PER_NODE = frozenset((*_OF_THE_GRAPH, *EDGE_TEXT_KEYS, "e_id"))
_NEVER_PER_EDGE = frozenset((*_OF_THE_GRAPH, "num_tokens", "text", "text_nodes", "n_id"))


class TextGraphStorage(GlobalStorage):
    """PyG's storage, told by name instead of by size what belongs to nodes and to edges."""

    def is_node_attr(self, key: str) -> bool:
        # texts are lists, which PyG's sampling loaders cannot index: there they are copied whole
        if key in _NEVER_PER_NODE or key in TEXT_KEYS:
            return False
        return key == "num_tokens" or super().is_node_attr(key)

    def is_edge_attr(self, key: str) -> bool:
        if key in _NEVER_PER_EDGE or key in TEXT_KEYS:
            return False
        value = self[key]
        if key == "e_id":
            return isinstance(value, Tensor) and value.shape == (self.num_edges,)
        if "edge" not in key:
            if isinstance(value, Tensor) and value.numel() == 1:  # of the graph, also where E = 1
                return False
            if isinstance(value, (list, tuple)) and len(value) == self.num_nodes:  # of nodes, as tensors where N = E
                return False
        return super().is_edge_attr(key)


class TextAttributedData(Data):
    r"""A graph whose nodes carry texts.

    Everything else (packing, positions, visibility) is derived from these fields by
    :class:`~pyg_textgraph.data.TokenLayout`. Batches and separates with PyG's own collate.

    Args:
        text: One text per node.
        edge_index: Edges, from row 0 to row 1.
        input_ids: The tokens of all nodes, node after node.
        num_tokens: Tokens per node.
        labels: Per token, the id to be predicted *at* that place (i.e. ``input_ids`` itself), or −100
            where nothing is supervised.
        target: The node whose text is continued or classified.
        num_nodes: Number of nodes; inferred from ``text`` or ``num_tokens`` when left out.
        **kwargs: Further attributes, as for :class:`torch_geometric.data.Data`.

    Shapes:
        - **edge_index** (2, E); **num_tokens** (N,); **input_ids**, **labels** (T,), T = sum of ``num_tokens``

    Raises:
        ValueError: By :meth:`validate`, naming the field.
    """

    def __init__(
        self,
        text: list[str] | None = None,
        edge_index: Tensor | None = None,
        input_ids: Tensor | None = None,
        num_tokens: Tensor | None = None,
        labels: Tensor | None = None,
        target: int | Tensor | None = None,
        num_nodes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(edge_index=edge_index)
        self.__dict__["_store"] = TextGraphStorage(self._store._mapping, _parent=self)
        fields = {"text": text, "input_ids": input_ids, "num_tokens": num_tokens, "labels": labels, "target": target}
        for key, value in (fields | kwargs).items():
            if value is not None:
                self[key] = value
        if num_nodes is None:
            num_nodes = next((len(x) for x in (num_tokens, text) if x is not None), None)
        if num_nodes is not None:
            self.num_nodes = num_nodes

    @classmethod
    def from_data(cls, data: Data) -> Self:
        """A copy of any :class:`~torch_geometric.data.Data`, tensors shared; ``text_nodes`` becomes ``text``.

        Raises:
            TypeError: If it is not one homogeneous graph.
        """
        check_one_graph(data, cls.__name__)
        fields = dict(data.to_dict())
        if "text" not in fields and "text_nodes" in fields:
            fields["text"] = list(fields.pop("text_nodes"))
        fields["num_nodes"] = data.num_nodes
        return cls(**fields)

    def is_node_attr(self, key: str) -> bool:
        return key in ("text", "text_nodes") or super().is_node_attr(key)

    def is_edge_attr(self, key: str) -> bool:
        return key in EDGE_TEXT_KEYS or super().is_edge_attr(key)

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key in (*TOKEN_KEYS, "num_tokens", "target"):
            return 0
        return super().__cat_dim__(key, value, *args, **kwargs)

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key == "target":
            return self.num_nodes
        if key in (*TOKEN_KEYS, "num_tokens"):
            return 0
        return super().__inc__(key, value, *args, **kwargs)

    @property
    def token_ptr(self) -> Tensor:
        """Where each node's tokens start and the last one's end, (N + 1,)."""
        ptr = self.num_tokens.new_zeros(self.num_tokens.numel() + 1)
        torch.cumsum(self.num_tokens, 0, out=ptr[1:])
        return ptr

    def subgraph(self, subset: Tensor) -> Self:
        """Returns the induced subgraph with its tokens; pair features are dropped, as they need the whole graph.

        Args:
            subset: The nodes to keep, indices or a mask.

        Raises:
            ValueError: If ``subset`` leaves out the target.
        """
        out = self._without_pair_features()
        keep = subset.nonzero().view(-1) if subset.dtype == torch.bool else subset
        if "target" in out:
            place = (keep == int(out.target)).nonzero().view(-1)
            if place.numel() == 0:
                raise ValueError(f"subgraph: 'subset' leaves out the target, node {int(out.target)}; delete it first")
            out.target = int(place[0])
        if "num_tokens" in out:
            ptr = self.token_ptr
            parts = [torch.arange(int(ptr[n]), int(ptr[n + 1]), device=keep.device) for n in keep.tolist()]
            tokens = torch.cat(parts) if parts else keep[:0]
            for key in TOKEN_KEYS:
                if key in out:
                    out[key] = self[key][tokens]
        return super(TextAttributedData, out).subgraph(subset)

    def edge_subgraph(self, subset: Tensor) -> Self:
        """Returns the graph with some of its edges; pair features are dropped, as they need all of them.

        Args:
            subset: The edges to keep, indices or a mask.
        """
        return super(TextAttributedData, self._without_pair_features()).edge_subgraph(subset)

    def _without_pair_features(self) -> Self:
        out = copy.copy(self)
        for key in PAIR_KEYS:
            if key in out:
                del out[key]
        return out

    def sort(self, sort_by_row: bool = True) -> Self:
        """Returns the graph with its edges in order, their texts with them."""
        texts = edge_texts(self)
        if not texts:
            return super().sort(sort_by_row)
        out = copy.copy(self)
        for key in texts:
            del out[key]
        out.edge_place = torch.arange(self.num_edges, device=self.edge_index.device)
        out = super(TextAttributedData, out).sort(sort_by_row)
        order = out.edge_place.tolist()
        del out.edge_place
        for key, value in texts.items():
            out[key] = _nested(out, [value[i] for i in order])
        return out

    def coalesce(self) -> Self:
        """Returns the graph with its edges in order and each one once.

        Raises:
            ValueError: If parallel edges have different texts.
        """
        texts = edge_texts(self)
        out = super().coalesce()
        for key, value in texts.items():
            text_of: dict[tuple[int, ...], str] = {}
            for ends, text in zip(map(tuple, self.edge_index.T.tolist()), value, strict=True):
                if text_of.setdefault(ends, text) != text:
                    raise ValueError(
                        f"coalesce: '{key}' of edges {ends} is {text_of[ends]!r} and {text!r}, expected one"
                    )
            out[key] = _nested(out, [text_of[tuple(ends)] for ends in out.edge_index.T.tolist()])
        return out

    def validate(self, raise_on_error: bool = True) -> bool:
        """Checks the fields against each other.

        Raises:
            ValueError: Naming the field, what it holds and what was expected.
        """
        problem = self._first_problem()
        if problem is not None and raise_on_error:
            raise ValueError(f"{self.__class__.__name__}: {problem}")
        return problem is None and super().validate(raise_on_error)

    def _first_problem(self) -> str | None:
        n = self._store._mapping.get("num_nodes")
        if n is None:
            return "'num_nodes' is not set; pass num_nodes=, text= or num_tokens="
        for key in ("edge_index", "num_tokens", *TOKEN_KEYS):
            value = self._store._mapping.get(key)
            if value is not None and not isinstance(value, Tensor):
                return f"'{key}' is a {type(value).__name__}, expected a tensor"
        edge_index = self._store._mapping.get("edge_index")
        if edge_index is not None:
            if edge_index.dtype != torch.long or edge_index.dim() != 2 or edge_index.size(0) != 2:
                return f"'edge_index' is {edge_index.dtype} of shape {tuple(edge_index.shape)}, expected int64 (2, E)"
            if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= n):
                bad = int(edge_index.max()) if int(edge_index.max()) >= n else int(edge_index.min())
                return f"'edge_index' holds node {bad} but the graph has {n} nodes"
        if "text" in self and not hasattr(self, "ptr") and len(self.text) != n:
            return f"'text' has {len(self.text)} entries but the graph has {n} nodes"
        if problem := edge_texts_problem(self):
            return problem
        if "num_tokens" in self:
            count = self.num_tokens
            if count.dtype != torch.long or count.shape != (n,):
                return f"'num_tokens' is {count.dtype} of shape {tuple(count.shape)}, expected int64 ({n},)"
            if n and int(count.min()) < 0:
                return f"'num_tokens' holds {int(count.min())}, expected counts of 0 or more"
            for key in TOKEN_KEYS:
                if key in self and (self[key].dtype != torch.long or self[key].shape != (int(count.sum()),)):
                    got = f"{self[key].dtype} of shape {tuple(self[key].shape)}"
                    return f"'{key}' is {got}, expected int64 ({int(count.sum())},), the sum of 'num_tokens'"
        elif "input_ids" in self:
            return "'input_ids' is set without 'num_tokens'"
        if "target" in self:
            target = torch.as_tensor(self.target).view(-1)
            if target.is_floating_point() or (target < 0).any() or (target >= n).any():
                return f"'target' is {target.tolist()}, expected node indices in [0, {n})"
        return None


def with_edge_index(data: Data) -> TextAttributedData:
    """A copy with ``edge_index`` where :class:`~torch_geometric.transforms.ToSparseTensor` left only ``adj_t``.

    Raises:
        ValueError: If edges have texts that are not one for each of them, or stand in the order of an ``edge_index``
            that is gone.
    """
    out = TextAttributedData.from_data(data)
    if "adj_t" in out:
        if "edge_index" not in out:
            if texts := next((key for key in EDGE_TEXT_KEYS if key in out), None):
                raise ValueError(
                    f"'{texts}' needs the order of 'edge_index', and only 'adj_t' is there; keep 'edge_index' "
                    f"(remove_edge_index=False), or delete data.{texts}"
                )
            index, out.edge_weight = to_edge_index(out.adj_t)
            out.edge_index = index.flip(0)
        del out.adj_t
    if problem := edge_texts_problem(out):
        raise ValueError(problem)
    return out


def take_rows(value: Any, index: Tensor, dim: int) -> Any:
    """Some rows of an attribute of nodes or edges."""
    # PyG's select walks a list with tensor scalars, many times slower
    return [value[i] for i in index.tolist()] if isinstance(value, (list, tuple)) else select(value, index, dim)


def rows_for_more_nodes(graph: TextAttributedData, extra: int) -> dict[str, Any]:
    """What has one row per node, with rows for new nodes that tell nothing: −1, NaN, False, or an empty text.

    Texts and tokens are left out, and so is a single number, which may be the graph's.
    """
    out: dict[str, Any] = {}
    for key, value in graph:
        single = isinstance(value, Tensor) and value.numel() == 1 and not key.endswith("mask")
        if key in (*TEXT_KEYS, "num_tokens") or single or not graph.is_node_attr(key):
            continue
        if isinstance(value, Tensor):
            dim = graph.__cat_dim__(key, value)
            unknown = False if value.dtype == torch.bool else -1 if not value.is_floating_point() else math.nan
            more = value.new_full((*value.shape[:dim], extra, *value.shape[dim:][1:]), unknown)
            out[key] = torch.cat([value, more], dim)
        elif isinstance(value, (list, tuple)):
            out[key] = [*value, *["" if all(isinstance(x, str) for x in value) else None] * extra]
    return out


def edge_texts_problem(data: Data) -> str | None:
    """What is wrong with the texts of edges, as after a transform that has changed the edges and not their texts."""
    for key in EDGE_TEXT_KEYS:
        if data.get(key) is None:
            continue
        size = sum(map(len, data[key])) if "ptr" in data else len(data[key])
        if size != data.num_edges:
            return (
                f"'{key}' has {size} entries but the graph has {data.num_edges} edges; texts do not follow PyG's "
                f"transforms of edges: set them afterwards, or delete data.{key}"
            )
    return None


def edge_texts(data: Data) -> dict[str, list[str]]:
    """The texts of edges by their key; a batch keeps them by graph.

    Raises:
        ValueError: If there is not one for each edge.
    """
    if problem := edge_texts_problem(data):
        raise ValueError(problem)
    found = {key: list(data[key]) for key in EDGE_TEXT_KEYS if data.get(key) is not None}
    return {key: list(itertools.chain(*value)) for key, value in found.items()} if "ptr" in data else found


def _nested(data: Data, texts: list[str]) -> list[Any]:
    """As a batch keeps them: by graph."""
    if "ptr" not in data:
        return texts
    counts = torch.bincount(data.batch[data.edge_index[0]], minlength=data.ptr.numel() - 1).tolist()
    ends = itertools.accumulate(counts)
    return [texts[end - count : end] for end, count in zip(ends, counts, strict=True)]


# PyG's own two are needed to load any Data with torch's safe loading
torch.serialization.add_safe_globals([TextAttributedData, TextGraphStorage, DataEdgeAttr, DataTensorAttr])
