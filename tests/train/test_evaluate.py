import torch

from pyg_textgraph.train import class_scores
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import gtlm, text_graph

NAMES = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]


def test_scores_come_in_the_order_of_the_data() -> None:
    model, graphs = gtlm(tiny("llama")), [text_graph(n, n) for n in (4, 2, 6, 3, 5)]
    scores = class_scores(model, graphs, NAMES, batch_size=2)
    torch.testing.assert_close(scores, torch.cat([model.classify(data, NAMES) for data in graphs]), atol=1e-4, rtol=0)
    assert class_scores(model, [], NAMES).shape == (0, 2)
