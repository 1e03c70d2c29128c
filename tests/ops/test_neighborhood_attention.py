import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.ops import neighborhood_attention
from pyg_textgraph.ops.neighborhood_attention import neighborhood_attention_reference


def inputs(seed: int = 0, centres: int = 3, members: int = 5, heads: int = 2, dim: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size = heads * dim
    shapes = {
        "x": (centres, members, size), "query": (heads, dim, size), "key": (heads, dim, size),
        "value": (heads, dim, size), "bias": (3, heads), "query_bias": (heads, dim), "value_bias": (heads, dim),
    }  # fmt: skip
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


VALID = torch.tensor([[True, True, True, True, True], [True, True, False, True, False], [True] + [False] * 4])


@pytest.mark.parametrize("num_queries", [1, 5])
def test_matches_reference(num_queries: int) -> None:
    results = []
    for backend in ("absorbed", "reference"):
        leaves = {name: x.requires_grad_() for name, x in inputs().items()}
        out = neighborhood_attention(**leaves, valid=VALID, num_queries=num_queries, backend=backend)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
        results.append([out, *torch.autograd.grad((out * weight).sum(), list(leaves.values()))])
    assert_close(*results)


def test_a_centre_alone_attends_to_itself() -> None:
    x = inputs()
    out = neighborhood_attention(**x, valid=VALID)
    expected = torch.einsum("d,hed->he", x["x"][2, 0], x["value"]) + x["value_bias"]
    assert_close(out[2, 0], expected.flatten())


def test_relations_by_hand() -> None:
    """No projections of queries: the weights are the softmax of the biases alone."""
    x = inputs(heads=1)
    x["query"], x["query_bias"] = torch.zeros_like(x["query"]), torch.zeros_like(x["query_bias"])
    x["bias"] = torch.tensor([[1.0], [2.0], [4.0]]).double().log()
    out = neighborhood_attention_reference(**x, valid=VALID[:2].new_ones(3, 5), num_queries=5)
    value = torch.einsum("cjd,hed->cje", x["x"], x["value"]) + x["value_bias"]
    assert_close(out[:, 0], (value[:, 0] + 2 * value[:, 1:].sum(1)) / 9)
    assert_close(out[:, 1], (2 * value[:, 0] + 4 * value[:, 1:].sum(1)) / 18)


def test_what_is_not_valid_does_not_matter() -> None:
    x = inputs()
    before = neighborhood_attention(**x, valid=VALID)
    x["x"][1, 2] = 100
    assert_close(neighborhood_attention(**x, valid=VALID), before)
