"""Graph-aligned language attention: a frozen language model that attends along the edges of a graph in its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from transformers import PreTrainedModel

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.data.linearization import GraphPrompt
from pyg_textgraph.nn.gala.interception import AttentionCall, attention_layers, intercept
from pyg_textgraph.nn.gala.strengths import HeadStrengths
from pyg_textgraph.ops.graph_attention import Backend, graph_attention
from pyg_textgraph.transforms.add_spd import AddSPD

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Heads = Literal["all", "random"] | HeadStrengths
Layers = Literal["first_half", "all"] | Sequence[int]


class GaLA:
    r"""Graph-aligned language attention (arXiv 2606.15633) on any Hugging Face decoder, without training.

    While the model reads a prompt, head :math:`h` adds :math:`\lambda_h / d(u, v)` to the attention score of a token of
    node :math:`u` and an earlier one of node :math:`v`, where :math:`d` counts the edges between two different nodes in
    either direction; nothing where there is no path or a token belongs to no node. Tokens that are generated belong to
    no node.

    The model object stays as it is. Only within a context, and only in the thread that entered it, do the chosen layers
    compute their attention here; all others, and all layers at strength 0, call the model's own function.

    Args:
        model: A decoder, or a :class:`~peft.PeftModel` of one.
        strength: β, by which **heads** are multiplied; may be set later.
        heads: Relative strength of every head: ``"all"`` (1), ``"random"`` (1 for half of the heads), or calibrated by
            :func:`entropy_strengths` or :func:`gradient_strengths`.
        layers: ``"first_half"``: layers 0 … ⌊L/2⌋, both included; ``"all"``; or a list.
        tokenizer: Turns generated tokens into texts.
        backend: Of :func:`~pyg_textgraph.ops.graph_attention`.

    Raises:
        ValueError: If the architecture cannot work, or **heads** or **layers** do not fit it.

    Example:
        >>> gala = GaLA(model, strength=2.0, heads=entropy_strengths(model, prompts), tokenizer=tokenizer)
        >>> gala.generate([linearize(graph, tokenizer, NODE_CLASS)], max_new_tokens=8)
    """

    def __init__(
        self,
        model: PreTrainedModel,
        strength: float = 1.0,
        heads: Heads = "all",
        layers: Layers = "first_half",
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        backend: Backend = "auto",
    ) -> None:
        self.model, self.tokenizer, self.backend = model, tokenizer, backend
        self.strength = strength
        config = model.config.get_text_config()
        shape = config.num_hidden_layers, config.num_attention_heads
        if isinstance(heads, str):
            if heads not in ("all", "random"):
                raise ValueError(f"GaLA: 'heads' is {heads!r}, expected 'all', 'random' or HeadStrengths")
            heads = HeadStrengths.all(*shape) if heads == "all" else HeadStrengths.random(*shape)
        if tuple(heads.values.shape) != shape:
            raise ValueError(f"GaLA: 'heads' is of shape {tuple(heads.values.shape)}, the model has {shape}")
        self.heads = heads
        self.layers = biased_layers(layers, shape[0])
        self._modules = attention_layers(model)

    @property
    def strengths(self) -> Tensor:
        """λ of every layer and head, (L, H)."""
        out = torch.zeros_like(self.heads.values)
        out[self.layers] = self.strength * self.heads.values[self.layers]
        return out

    def __call__(self, prompts: GraphPrompt | Sequence[GraphPrompt]) -> AbstractContextManager[None]:
        """A context in which the model reads these prompts, left-padded, with attention along their edges.

        Several sequences per prompt, as in beam search, stand next to each other. Prompts are read at once; whatever
        follows them, with or without a cache, belongs to no node.
        """
        prompts = [prompts] if isinstance(prompts, GraphPrompt) else list(prompts)
        return self.biased(prompts, self.strengths)

    @contextmanager
    def biased(self, prompts: Sequence[GraphPrompt], strengths: Tensor) -> Iterator[None]:
        """As calling, with λ given; they may require gradients. Shapes: **strengths** (L, H)."""
        active = strengths.detach().ne(0).any(-1) | strengths.requires_grad
        modules = [self._modules[layer] for layer in self.layers if active[layer]]
        with intercept(modules, PromptBias(prompts, strengths.to(self.model.device), self.backend)):
            yield

    def generate(self, prompts: GraphPrompt | Sequence[GraphPrompt], **kwargs: Any) -> list[str]:
        """Answers to prompts, one after the other; several are read as one batch.

        Args:
            prompts: From :func:`~pyg_textgraph.data.linearize`.
            **kwargs: Passed to the model's own ``generate``.

        Raises:
            ValueError: If there is no tokenizer.
        """
        if self.tokenizer is None:
            raise ValueError("GaLA: texts need a tokenizer; pass tokenizer=, or use model.generate in a context")
        prompts = [prompts] if isinstance(prompts, GraphPrompt) else list(prompts)
        ids, mask = pad_left(prompts, self.tokenizer.pad_token_id or 0)
        device = self.model.device
        with self(prompts):
            out = self.model.generate(input_ids=ids.to(device), attention_mask=mask.to(device), **kwargs)
        return self.tokenizer.batch_decode(out[:, ids.size(1) :], skip_special_tokens=True)


class PromptBias:
    """Adds the bias of some prompts to the layers' attention, as long as a layer reads them from their start."""

    def __init__(self, prompts: Sequence[GraphPrompt], strengths: Tensor, backend: Backend) -> None:
        if not prompts:
            raise ValueError("GaLA: 'prompts' is empty")
        self.prompts, self.strengths, self.backend = prompts, strengths, backend
        self.longest = max(len(prompt) for prompt in prompts)
        size = max(prompt.num_nodes for prompt in prompts)
        self.nearness = torch.stack([inverse_distance(p.edge_index, p.num_nodes, size) for p in prompts])  # [B, N, N]
        self._position: Tensor | None = None
        self._first = 0
        self.read: dict[tuple[int, int], tuple[TokenLayout, Tensor | None, Tensor]] = {}

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        batch, _, size, _ = call.query.shape
        start = 0 if size == call.key.size(2) else self._start(call)
        if start >= self.longest:
            return call.own()  # what follows the prompts
        if start + size < self.longest:
            raise ValueError(f"GaLA: the model reads {start + size} tokens, the longest prompt has {self.longest}")
        if start > 0:
            raise ValueError(f"GaLA: the model reads the prompts from token {start} on, expected all of them at once")
        layout, keep, nearness = self._packed(batch, size, call.query.device)
        q, k, v = (x[:, :, :size].transpose(1, 2) for x in (call.query, call.key, call.value))  # [B, T, H, D]
        q, k, v = (x.flatten(0, 1) if keep is None else x[keep] for x in (q, k, v))
        strength = self.strengths[call.layer].to(q.device)[:, None, None]  # [H, 1, 1]
        out = graph_attention(
            q, k, v, layout, strength * nearness[:, None],
            scale=call.kwargs.get("scaling"), softcap=call.kwargs.get("softcap"),
            window=call.kwargs.get("sliding_window"), backend=self.backend,
        )  # fmt: skip
        if keep is not None:
            out = out.new_zeros(batch, size, *out.shape[1:]).index_put((keep,), out)
        return out.view(batch, size, *out.shape[-2:]), None

    def _start(self, call: AttentionCall) -> int:
        """Where the first query of the longest sequence stands. A cache's keys do not tell: it may have free places."""
        position = call.kwargs.get("position_ids")
        if position is None:
            return self.longest if call.query.size(2) < self.longest else 0
        if position is not self._position:  # the same for all layers
            first = int(position[..., 0].max())
            # transformers puts padding tokens at position 1
            self._position, self._first = position, 0 if first <= 1 < self.longest else first
        return self._first

    def _packed(self, batch: int, size: int, device: torch.device) -> tuple[TokenLayout, Tensor | None, Tensor]:
        """Layout, which tokens (B, T) are no padding (None: all), and 1/d (B, N, N); made once for all layers."""
        if (batch, size) not in self.read:
            if batch % len(self.prompts):
                raise ValueError(f"GaLA: a batch of {batch} for {len(self.prompts)} prompts")
            copies = batch // len(self.prompts)
            prompts = [prompt for prompt in self.prompts for _ in range(copies)]
            layout, keep = causal_layout(prompts, size)
            nearness = self.nearness.repeat_interleave(copies, 0).to(device)
            self.read[batch, size] = layout.to(device), None if keep is None else keep.to(device), nearness
        return self.read[batch, size]


def biased_layers(layers: Layers, num_layers: int) -> list[int]:
    """The layers that a name or a list stands for."""
    if isinstance(layers, str):
        if layers not in ("first_half", "all"):
            raise ValueError(f"GaLA: 'layers' is {layers!r}, expected 'first_half', 'all' or a list of layers")
        return list(range(num_layers // 2 + 1 if layers == "first_half" else num_layers))[:num_layers]
    if any(not 0 <= layer < num_layers for layer in layers):
        raise ValueError(f"GaLA: 'layers' is {list(layers)} but the model has layers 0 to {num_layers - 1}")
    return sorted(set(layers))


def inverse_distance(edge_index: Tensor, num_nodes: int, size: int | None = None) -> Tensor:
    """1/d for two different nodes with a path of d edges between them, directions ignored, else 0.

    Shapes:
        - **edge_index** (2, E)
        - **returns** (size, size), ``num_nodes`` by default, padded with zeros
    """
    hops = AddSPD(max_dist=num_nodes + 1, directed=False)(Data(edge_index=edge_index, num_nodes=num_nodes)).spd
    hops = hops.view(num_nodes, num_nodes).float()
    out = torch.zeros(size or num_nodes, size or num_nodes)
    out[:num_nodes, :num_nodes] = torch.where(hops > 0, 1 / hops.clamp(min=1), 0)
    return out


def causal_layout(prompts: Sequence[GraphPrompt], size: int) -> tuple[TokenLayout, Tensor | None]:
    """Layout of left-padded prompts of which ``size`` tokens are read, and which tokens (B, size) are no padding.

    The tokens after a prompt belong to no node.
    """
    longest = max(len(prompt) for prompt in prompts)
    count = torch.tensor([len(prompt) + size - longest for prompt in prompts])
    node = torch.cat([torch.cat([p.node, p.node.new_full((size - longest,), -1)]) for p in prompts])
    keep = torch.arange(size) >= size - count[:, None]
    layout = TokenLayout(
        order=torch.arange(node.numel()),
        graph_ptr=torch.cat([count.new_zeros(1), count.cumsum(0)]),
        node=node,
        position=torch.cat([torch.arange(int(n)) for n in count]),
        is_target=torch.zeros_like(node, dtype=torch.bool),
        num_nodes=torch.tensor([prompt.num_nodes for prompt in prompts]),
        mode="causal",
    )
    return layout, None if bool(keep.all()) else keep


def pad_left(prompts: Sequence[GraphPrompt], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask of prompts as one batch, both (B, T)."""
    size = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), size), pad_id)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, size - len(prompt) :] = prompt.input_ids
        mask[row, size - len(prompt) :] = 1
    return ids, mask
