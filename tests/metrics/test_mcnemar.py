import pytest
import torch

from pyg_textgraph.metrics import mcnemar


def test_by_hand() -> None:
    a = torch.tensor([1, 1, 1, 1, 1, 0, 1, 0]).bool()
    b = torch.tensor([0, 0, 0, 0, 0, 1, 1, 0]).bool()
    # 5 against 1 of 6: 2 · (1 + 6) / 64
    assert mcnemar(a, b) == mcnemar(b, a) == pytest.approx(14 / 64)


def test_no_difference() -> None:
    a = torch.tensor([True, False])
    assert mcnemar(a, a) == 1
    with pytest.raises(ValueError, match="shape"):
        mcnemar(a, a[:1])
