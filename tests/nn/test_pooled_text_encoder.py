from pathlib import Path
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.nn import PooledTextEncoder
from pyg_textgraph.nn.models.graphformers.pooled import Pooling
from tests.text_encoders import randomize, text_graph, tiny_encoder, tiny_text_tokenizer

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def model_of(pooling: Pooling) -> PooledTextEncoder:
    model = PooledTextEncoder(tiny_encoder(), tiny_text_tokenizer(), pooling).eval()
    randomize(model.graph_parameters())
    return model


def pooled(model: PooledTextEncoder, centre: Tensor, neighbors: Tensor) -> Tensor:
    """The pooled vector of one centre (d,) with k neighbours (k, d), written out."""
    members = torch.cat([centre[None], neighbors])
    if model.pooling == "mean":
        return neighbors.mean(0) if len(neighbors) else torch.zeros_like(centre)
    if model.pooling == "max":
        return model.pool(neighbors).relu().amax(0) if len(neighbors) else torch.zeros_like(centre)
    if model.pooling == "attention":
        return model.pool(members[None], torch.ones(1, len(members), dtype=torch.bool))[0]
    gat = model.pool
    h = gat.lin(members).view(-1, gat.heads, gat.out_channels)
    score = F.leaky_relu((h * gat.att_src).sum(-1) + (h[0] * gat.att_dst[0]).sum(-1), 0.2)  # [1 + k, H]
    return (score.softmax(0)[..., None] * h).sum(0).flatten() + gat.bias


@pytest.mark.parametrize("pooling", POOLINGS)
def test_matches_reference_with_gradients(pooling: Pooling) -> None:
    nodes, results = torch.tensor([0, 3, 8, 0, 5]), []
    for ours in (True, False):
        model = model_of(pooling)
        sampler = model.sampler(text_graph(), 3)
        if ours:
            out = model(sampler(nodes))
        else:
            encode = lambda n: model.encoder(sampler.texts(torch.tensor([n])).input_ids[None])[0][0, 0]  # noqa: B023, E731
            rows = []
            for node, found in zip(nodes.tolist(), sampler.neighbors(nodes).tolist(), strict=True):
                centre = encode(node)
                others = [encode(v) for v in found if v >= 0]
                neighbors = torch.stack(others) if others else centre.new_empty(0, 16)
                rows.append(
                    centre
                    if pooling == "text"
                    else model.combine(torch.cat([centre, pooled(model, centre, neighbors)]))
                )
            out = torch.stack(rows)
        out.pow(3).sum().backward()
        results.append([out, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}])
    assert_close(*results)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_cached_equals_uncached_and_survives_saving(pooling: Pooling, tmp_path: Path) -> None:
    model = model_of(pooling)
    sampler = model.sampler(text_graph(), 4)
    expected = model(sampler(torch.arange(9))).detach()
    assert_close(model.embed(sampler, batch_size=4).embedding, expected)
    model.save_pretrained(tmp_path)
    assert_close(PooledTextEncoder.from_pretrained(tmp_path).double().eval()(sampler(torch.arange(9))), expected)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_untrained_it_is_the_text_encoder(pooling: Pooling) -> None:
    model = PooledTextEncoder(tiny_encoder(), tiny_text_tokenizer(), pooling).eval()
    batch = model.sampler(text_graph(), 4)(torch.arange(9))
    assert_close(model(batch), model_of("text")(batch))


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match="'median'"):
        PooledTextEncoder(tiny_encoder(), pooling="median")


@pytest.mark.parametrize(("family", "target"), [("bert", "query"), ("modernbert", "Wqkv"), ("modernbert", "Wo")])
def test_adapters_are_read_trained_and_saved(tmp_path: Path, family: str, target: str) -> None:
    torch.manual_seed(0)
    lora = LoraConfig(r=2, target_modules=[target], init_lora_weights=False)
    encoder = get_peft_model(tiny_encoder(family), lora)
    model = PooledTextEncoder(encoder, tiny_text_tokenizer(), pooling="text").eval()
    sampler = model.sampler(text_graph(), 3)
    nodes = torch.arange(4)
    out = model(sampler(nodes))
    alone = [encoder(sampler.texts(torch.tensor([n])).input_ids[None]).last_hidden_state[0, 0] for n in nodes.tolist()]
    assert_close(out, torch.stack(alone), atol=1e-4, rtol=1e-4)
    out.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "lora" in name)
    model.save_pretrained(tmp_path)
    assert_close(PooledTextEncoder.from_pretrained(tmp_path)(sampler(nodes)), out, atol=1e-4, rtol=1e-4)
