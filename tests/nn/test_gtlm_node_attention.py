"""Where the last token looks, against attention itself: values that name their node come out as shares of nodes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch

from pyg_textgraph.data import TokenLayout
from pyg_textgraph.nn.models.text_graph_lm.attention import PackedContext
from tests.nn.families import CONFIGS, tiny
from tests.nn.gtlm_graphs import gtlm, single_node, text_graph


@pytest.mark.parametrize("k_hop", [None, 1])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_equals_what_attention_does(family: str, k_hop: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gtlm(tiny(family), k_hop=k_hop)
    batch = Batch.from_data_list([text_graph(6, 0), single_node(7), text_graph(4, 2)])
    layout, expected = TokenLayout.from_data(batch), []
    attend = PackedContext.attend

    def watched(self: PackedContext, layer: int, q: Any, k: Any, v: Any, *args: Any) -> Any:
        node = F.one_hot(layout.node, v.size(-1)).to(v)
        expected.append(attend(self, layer, q, k, node.expand_as(v), *args)[0, layout.last, :, :6])
        return attend(self, layer, q, k, v, *args)

    monkeypatch.setattr(PackedContext, "attend", watched)
    found = model.node_attention(batch)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    assert bool((found[:, 1, :, 1:] == 0).all())  # a graph of one node has no others


def test_needs_a_target() -> None:
    data = text_graph(3, 0)
    del data.target
    with pytest.raises(ValueError, match="'target'"):
        gtlm(tiny("llama")).node_attention(data)


def test_layers_in_order() -> None:
    model, data = gtlm(tiny("llama")), text_graph(5, 1)
    assert model.node_attention(data).shape[0] == model.base_model.config.num_hidden_layers
    assert not model.training
