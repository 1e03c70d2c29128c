"""Seconds of GaLA beside plain inference on the same prompt, and where they go."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch_geometric.data import Data
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.common import Row, interleaved
from pyg_textgraph.data import NEIGHBOR_LABELS, GraphPrompt, linearize
from pyg_textgraph.nn.gala import GaLA, entropy_strengths, gradient_strengths, inverse_distance, option_ids

OPTIONS = ["Neural Networks", "Theory"]


def prompt_of_about(tokens: int, tokenizer: PreTrainedTokenizerBase) -> GraphPrompt:
    """A random tree in breadth-first order, as large as fits."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(tokens, generator=generator)
    prompt = None
    for n in range(2, tokens):
        child = torch.arange(1, n)
        data = Data(edge_index=torch.stack([(drawn[: n - 1] * child).long(), child]), num_nodes=n)
        labels = [None, *(OPTIONS[v % 2] for v in range(1, n))]
        larger = linearize(data, tokenizer, NEIGHBOR_LABELS, labels=labels, options=OPTIONS)
        if len(larger) > tokens:
            break
        prompt = larger
    if prompt is None:
        raise ValueError(f"no graph fits into {tokens} tokens")
    return prompt


def overhead(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, repeats: int, tokens: int = 1000) -> list[Row]:
    prompt = prompt_of_about(tokens, tokenizer)
    ids = prompt.input_ids[None].to(model.device)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    heads = entropy_strengths(model, [prompt])
    gala = GaLA(model, 2.0, heads, tokenizer=tokenizer)

    def synchronized(value: object) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def plain() -> None:
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        synchronized(tokenizer.batch_decode(out[:, ids.size(1) :], skip_special_tokens=True))

    seconds = interleaved({"plain": plain, "gala": lambda: synchronized(gala.generate(prompt, **options))}, repeats)
    case = f"overhead nodes={prompt.num_nodes} tokens={len(prompt)} new=8 {str(model.dtype).removeprefix('torch.')}"
    rows: list[Row] = [
        {"case": case, "metric": "seconds", "value": seconds["gala"], "peer": "generate without GaLA, same BFS prompt",
         "peer_value": seconds["plain"], "ratio": seconds["gala"] / seconds["plain"], "repeats": repeats,
         "threads": torch.get_num_threads(), "layers": len(gala.layers)},
    ]  # fmt: skip
    answer = option_ids(tokenizer, OPTIONS, prompt.lead)[0]
    parts: dict[str, Callable[[], object]] = {
        "inference": lambda: gala.generate(prompt, **options),
        "shortest paths": lambda: inverse_distance(prompt.edge_index, prompt.num_nodes),
        "entropy calibration, one prompt": lambda: entropy_strengths(model, [prompt]),
        "gradient calibration, one prompt": lambda: gradient_strengths(gala, [prompt], [answer]),
    }
    for name, part in parts.items():
        start = time.perf_counter()
        synchronized(part())
        rows.append({"case": f"split: {name}", "metric": "seconds", "value": time.perf_counter() - start})
    return rows
