import torch
from torch_geometric.data import Data

from pyg_textgraph.train import majority, neighbour_vote


def test_majority_of_the_training_nodes() -> None:
    y = torch.tensor([0, 1, 1, 2, 2, 2])
    assert majority(y, torch.tensor([0, 1, 2]), torch.tensor([3, 4])).tolist() == [1, 1]


def test_neighbours_vote_in_both_directions_and_the_test_labels_do_not() -> None:
    #    3 -> 0 <- 1,  0 -> 2,  4 alone,  5 -> 2
    data = Data(edge_index=torch.tensor([[3, 1, 0, 5], [0, 0, 2, 2]]), num_nodes=6, y=torch.tensor([9, 1, 0, 1, 9, 9]))
    train = torch.tensor([1, 2, 3])
    # node 0 sees 1, 1 (in) and 0 (out); node 5 sees 0; node 4 sees nobody: the majority, 1
    assert neighbour_vote(data, train, torch.tensor([0, 5, 4])).tolist() == [1, 0, 1]
    data.y[0] = 3  # a test label
    assert neighbour_vote(data, train, torch.tensor([0, 5, 4])).tolist() == [1, 0, 1]


def test_parallel_edges_vote_once() -> None:
    data = Data(
        edge_index=torch.tensor([[1, 1, 1, 2, 3], [0, 0, 0, 0, 0]]), num_nodes=5, y=torch.tensor([0, 1, 2, 2, 1])
    )
    assert neighbour_vote(data, torch.tensor([1, 2, 3]), torch.tensor([0])).tolist() == [2]
