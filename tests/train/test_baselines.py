import pytest
import torch
from torch_geometric.data import Data

from pyg_textgraph.train import label_propagation, majority, neighbour_vote


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


def path(y: list[int]) -> Data:
    steps = torch.arange(len(y) - 1)
    return Data(edge_index=torch.stack([steps, steps + 1]), num_nodes=len(y), y=torch.tensor(y))


def test_labels_propagate_in_both_directions_and_the_majority_is_the_rest() -> None:
    data = path([1, 9, 9, 9, 9, 0, 9, 9])
    data.num_nodes, data.y = 9, torch.cat([data.y, data.y.new_tensor([9])])  # node 8 has no edges
    train, nodes = torch.tensor([0, 5]), torch.tensor([1, 4, 6, 7, 8])
    assert label_propagation(data, train, nodes, num_layers=[2], alpha=[0.9]).tolist() == [1, 0, 0, 0, 0]
    # one step reaches neighbours only; node 7 falls back on the majority, class 1 once it has more examples
    train = torch.tensor([0, 5, 8])
    data.y[8] = 1
    assert label_propagation(data, train, nodes[:4], num_layers=[1], alpha=[0.9]).tolist() == [1, 0, 0, 1]


def test_propagation_is_chosen_by_validation_and_reads_no_test_label() -> None:
    data = path([0, 0, 1, 1, 1, 2])
    train, nodes = torch.tensor([0, 4, 3]), torch.tensor([2, 1])
    # one step leaves node 1 to 0; node 5 is 2 in truth, which nobody can answer
    first = label_propagation(data, train, nodes, validation=torch.tensor([1, 5]))
    data.y[2] = 0
    assert torch.equal(first, label_propagation(data, train, nodes, validation=torch.tensor([1, 5])))
    # node 4 is two steps from the only label: one step gives it the majority
    far = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 5, 5]]), num_nodes=6, y=torch.tensor([0, 0, 0, 1, 1, 0]))
    train = torch.tensor([0, 3, 4])
    node = torch.tensor([2])
    one = label_propagation(far, train, node, num_layers=[1], alpha=[0.9])
    chosen = label_propagation(far, train, node, validation=node, num_layers=[1, 2], alpha=[0.9])
    assert one.tolist() == [1]
    assert chosen.tolist() == [0]
    with pytest.raises(ValueError, match="28 settings and no 'validation'"):
        label_propagation(far, train, torch.tensor([2]))
