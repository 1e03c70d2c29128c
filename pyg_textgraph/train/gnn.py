"""Graph neural networks on text embeddings: what a language model that reads the graph has to beat."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, MLP, GraphSAGE
from torch_geometric.utils import to_undirected
from tqdm import tqdm

from pyg_textgraph.atomic import saving_file
from pyg_textgraph.pretrained import MINILM, cache_folder, fetch, load_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

GNNName = Literal["mlp", "gcn", "sage", "gat"]
_MODELS: dict[str, Callable[..., nn.Module]] = {"gcn": GCN, "sage": GraphSAGE, "gat": GAT}


@torch.no_grad()
def embed_texts(
    texts: Sequence[str],
    encoder: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    max_tokens: int = 256,
    batch_size: int = 32,
    folder: Path | None = None,
    progress: str | None = None,
) -> Tensor:
    """One vector per text: the mean of its last hidden states, of length 1, as sentence-transformers has it.

    The result is kept on disk under a hash of the tokens and the weights, so a second call only reads.

    Args:
        texts: What to embed.
        encoder: Any Hugging Face encoder; MiniLM by default.
        tokenizer: The encoder's; given together with it.
        max_tokens: Longer texts are cut here, as sentence-transformers does for MiniLM.
        batch_size: Texts at a time, longest first.
        folder: Where results are kept; a folder in the user's cache by default.
        progress: Name of a progress bar; none by default.

    Shapes: **returns** (len(texts), d), float32, on the CPU

    Raises:
        ValueError: If only one of **encoder** and **tokenizer** is given, or there are no texts.
    """
    if (encoder is None) != (tokenizer is None):
        raise ValueError("embed_texts: 'encoder' and 'tokenizer' belong together, and one of them is missing")
    if not texts:
        raise ValueError("embed_texts: 'texts' is empty, expected at least one")
    if encoder is None:
        from transformers import AutoModel, AutoTokenizer

        base = fetch(MINILM)[0]
        encoder, tokenizer = AutoModel.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    model: Any = encoder
    tokenize: Any = tokenizer
    token_ids = tokenize(list(texts), truncation=True, max_length=max_tokens)["input_ids"]
    path = (folder or cache_folder() / "embeddings") / f"{_content_hash(token_ids, model)}.safetensors"
    if path.is_file():
        return load_tensors(path)["embedding"]
    training = model.training
    model.eval()
    order = sorted(range(len(texts)), key=lambda i: -len(token_ids[i]))
    out: Tensor | None = None
    try:
        for start in tqdm(range(0, len(order), batch_size), progress, disable=progress is None, leave=False):
            chosen = order[start : start + batch_size]
            batch = tokenize.pad({"input_ids": [token_ids[i] for i in chosen]}, return_tensors="pt").to(model.device)
            hidden = model(**batch).last_hidden_state.float()  # [b, l, d]
            mask = batch["attention_mask"].unsqueeze(-1).float()
            mean = F.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1), dim=-1).cpu()
            out = mean.new_empty(len(texts), mean.size(-1)) if out is None else out
            out[chosen] = mean
    finally:
        model.train(training)
    assert out is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with saving_file(path) as part:
        save_file({"embedding": out}, str(part))
    return out


@dataclass(frozen=True)
class GNNConfig:
    """Settings of :func:`train_gnn`.

    Args:
        hidden: Channels of the hidden layers.
        num_layers: Message-passing layers.
        dropout: Between layers.
        norm: Between layers, by PyG's name; none by default.
        heads: Of GAT.
        lr: Adam's rate.
        weight_decay: Adam's decay.
        epochs: The most passes.
        patience: Passes without a better validation accuracy before training ends.
    """

    hidden: int = 256
    num_layers: int = 2
    dropout: float = 0.5
    norm: str | None = None
    heads: int = 8
    lr: float = 1e-2
    weight_decay: float = 5e-4
    epochs: int = 300
    patience: int = 50


class _OnlyFeatures(MLP):
    """A perceptron with the call of a graph neural network."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = super().forward(x)
        return out


def build_gnn(name: GNNName, in_channels: int, num_classes: int, config: GNNConfig) -> nn.Module:
    """One of PyG's GCN, GraphSAGE and GAT, or a perceptron that reads no edges.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in get_args(GNNName):
        raise ValueError(f"build_gnn: 'name' is {name!r}, expected one of {get_args(GNNName)}")
    common = {"dropout": config.dropout, "norm": config.norm}
    if name == "mlp":
        return _OnlyFeatures([in_channels, *[config.hidden] * (config.num_layers - 1), num_classes], **common)
    own = {"heads": config.heads} if name == "gat" else {}
    return _MODELS[name](in_channels, config.hidden, config.num_layers, num_classes, **common, **own)


def train_gnn(
    name: GNNName,
    x: Tensor,
    data: Data,
    train: Tensor,
    validation: Tensor,
    nodes: Tensor,
    *,
    config: GNNConfig | None = None,
    seed: int = 0,
    progress: str | None = None,
) -> Tensor:
    """Trains a model of :func:`build_gnn` on the whole graph, and answers with its best state on validation.

    Edges pass messages in both directions. Labels of other nodes than **train** and **validation** are not read, and
    validation labels only choose the state.

    Args:
        name: ``"gcn"``, ``"sage"``, ``"gat"`` or ``"mlp"``.
        x: Node features, such as :func:`embed_texts` of the nodes' texts.
        data: The graph, with ``y`` and ``edge_index``.
        train: Nodes to learn from.
        validation: Nodes by whose accuracy the state is chosen, the earliest best.
        nodes: Nodes to answer.
        config: Sizes and rates.
        seed: Of weights and dropout; the caller's random state stays as it is.
        progress: Name of a progress bar; none by default.

    Shapes:
        - **x** (N, d); **train** (M,), **validation** (V,), **nodes** (n,) indices; **returns** (n,)

    Raises:
        ValueError: If the name is unknown, a set of nodes is empty, or **x** has not one row per node.
    """
    config = config or GNNConfig()
    if train.numel() == 0 or validation.numel() == 0:
        raise ValueError("train_gnn: expected at least one node to train on and one to validate on")
    if x.size(0) != data.num_nodes:
        raise ValueError(f"train_gnn: 'x' has {x.size(0)} rows but the graph has {data.num_nodes} nodes")
    y: Tensor = data.y
    edges = to_undirected(data.edge_index, num_nodes=x.size(0))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_gnn(name, x.size(1), int(y[train].max()) + 1, config).to(x.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        best, since, state = -1.0, 0, copy.deepcopy(model.state_dict())
        for _ in tqdm(range(config.epochs), progress, disable=progress is None, leave=False):
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(x, edges)[train], y[train]).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                right = float((model(x, edges)[validation].argmax(-1) == y[validation]).float().mean())
            since += 1
            if right > best:
                best, since, state = right, 0, copy.deepcopy(model.state_dict())
            if since >= config.patience:
                break
    model.load_state_dict(state)
    with torch.no_grad():
        return model.eval()(x, edges)[nodes].argmax(-1)


def _content_hash(token_ids: Sequence[Sequence[int]], model: nn.Module) -> str:
    """Of all that the embeddings depend on: tokens and weights."""
    told = hashlib.sha256(f"mean {len(token_ids)}".encode())
    for ids in token_ids:
        told.update(len(ids).to_bytes(8, "little") + torch.tensor(ids, dtype=torch.long).numpy().tobytes())
    for name, value in model.state_dict().items():
        told.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        told.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return told.hexdigest()[:32]
