import pytest
import torch
from torch.testing import assert_close

from pyg_textgraph.data import PackedTexts
from pyg_textgraph.nn import GraphFormersLayer
from pyg_textgraph.nn.text_encoders import encoder_steps
from tests.text_encoders import FAMILIES, tiny_encoder


def packed(num_tokens: list[int], num_centres: int = 0, seed: int = 0) -> tuple[PackedTexts, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    texts = [torch.randint(5, 45, (n,), generator=generator) for n in num_tokens]
    return PackedTexts.pack(torch.cat(texts), torch.tensor(num_tokens), num_centres), texts


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_graph_vector_it_is_the_encoders_own_layer(family: str) -> None:
    encoder = tiny_encoder(family, torch.float32)
    steps = encoder_steps(encoder)
    texts, alone = packed([3, 9, 5, 1, 9], num_centres=2)
    x, bias = steps.embed(texts.input_ids, texts.position), steps.position_bias(texts.max_length)
    states = [x]
    for i in range(len(steps.layers)):
        states.append(GraphFormersLayer(steps, i)(states[-1], texts, position_bias=bias)[0])
    for number, ids in enumerate(alone):
        out = encoder(input_ids=ids[None], output_hidden_states=True)
        start = int(texts.first[number])
        mine = slice(start, start + len(ids))
        for ours, theirs in zip(states[:-1], out.hidden_states[:-1], strict=True):
            assert_close(ours[mine], theirs[0], atol=1e-6, rtol=1e-6)
        assert_close(steps.final(states[-1])[mine], out.last_hidden_state[0], atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_the_encoders_own(family: str) -> None:
    grads = []
    for ours in (True, False):
        encoder = tiny_encoder(family)
        texts, alone = packed([3, 7, 7])
        if ours:
            steps = encoder_steps(encoder)
            x, bias = steps.embed(texts.input_ids, texts.position), steps.position_bias(texts.max_length)
            for i in range(3):
                x = GraphFormersLayer(steps, i)(x, texts, position_bias=bias)[0]
            loss = steps.final(x).pow(3).sum()
        else:
            loss = torch.stack([encoder(input_ids=ids[None]).last_hidden_state.pow(3).sum() for ids in alone]).sum()
        loss.backward()
        grads.append({n: p.grad for n, p in encoder.named_parameters() if p.grad is not None})
    tolerance = {"atol": 1e-4, "rtol": 1e-4} if family == "modernbert" else {}  # Hugging Face rotates in float32
    assert_close(*grads, **tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_vector_is_one_more_key_and_value(family: str) -> None:
    """Against attention written out, with no positional bias for the slot and outside of any window."""
    steps = encoder_steps(tiny_encoder(family))
    texts, _ = packed([8, 8, 3], num_centres=2)
    torch.manual_seed(0)
    x, graph = torch.randn(19, 16).double(), torch.randn(2, 16).double()
    bias = steps.position_bias(8)
    for index in range(3):
        out, none = GraphFormersLayer(steps, index)(x, texts, graph, position_bias=bias)
        assert none is None
        plain_q, plain_k, v = steps.project(index, x)
        q, k = steps.rotate(index, plain_q, plain_k, texts.position)
        rows = []
        for text, start, length in ((0, 0, 8), (1, 8, 8), (None, 16, 3)):
            for i in range(start, start + length):
                score = torch.einsum("hd,jhd->hj", q[i], k[start : start + length]) / 2
                value = v[start : start + length]
                if bias is not None:
                    score = score + bias[:, i - start, :length]
                if steps.window(index) is not None:
                    far = (torch.arange(length) - (i - start)).abs() > steps.window(index)
                    score = score.masked_fill(far, -torch.inf)
                if text is not None:
                    _, key, extra = steps.project(index, graph[text, None])
                    slot = torch.einsum("hd,hd->h", plain_q[i], key[0])[:, None] / 2
                    score, value = torch.cat([score, slot], dim=1), torch.cat([value, extra])
                rows.append(torch.einsum("hj,jhd->hd", score.softmax(-1), value))
        assert_close(out, steps.finish(index, torch.stack(rows), x))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("with_graph", [False, True])
def test_first_tokens_alone(family: str, with_graph: bool) -> None:
    steps = encoder_steps(tiny_encoder(family))
    texts, _ = packed([8, 3, 8, 1], num_centres=3)
    torch.manual_seed(0)
    x, graph = torch.randn(20, 16).double(), torch.randn(3, 16).double() if with_graph else None
    for index in range(3):
        layer, bias = GraphFormersLayer(steps, index), steps.position_bias(8)
        whole = layer(x, texts, graph, position_bias=bias)[0]
        assert_close(layer.first_tokens(x, texts, graph, position_bias=bias), whole[texts.first])


def test_other_models_are_refused() -> None:
    encoder = tiny_encoder()
    encoder.config.is_decoder = True
    with pytest.raises(ValueError, match="is_decoder"):
        encoder_steps(encoder)
    encoder.config.model_type = "t5"
    with pytest.raises(ValueError, match="t5"):
        encoder_steps(encoder)
