import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Data, HeteroData

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.transforms import AddSPD, SplitTextLinks


def graph(num_nodes: int = 30, num_edges: int = 200, seed: int = 0) -> TextAttributedData:
    """Random edges with self-loops, parallel and reverse ones, each with its number."""
    edge_index = torch.randint(num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(seed))
    edge_index = torch.cat([edge_index, edge_index[:, :40].flip(0), edge_index[:, 40:60]], dim=1)
    number = torch.arange(edge_index.size(1))
    return TextAttributedData(
        text=["w"] * num_nodes, edge_index=edge_index, edge_type=number, text_edges=[str(i) for i in number.tolist()]
    )


def links(edge_index: torch.Tensor) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in edge_index.T.tolist() if u != v}


def test_no_link_is_in_two_parts() -> None:
    data = graph()
    train, val, test = SplitTextLinks(20, 30, seed=1)(data)
    parts = [links(part.edge_label_index) for part in (train, val, test)]
    assert [len(part) for part in parts] == [len(links(data.edge_index)) - 50, 20, 30]
    assert [part.edge_label_index.size(1) for part in (train, val, test)] == [len(part) for part in parts]
    assert parts[0] | parts[1] | parts[2] == links(data.edge_index)
    assert links(train.edge_index) == links(val.edge_index) == parts[0]
    assert links(test.edge_index) == parts[0] | parts[1]


def test_edge_attributes_follow_their_edges() -> None:
    data = graph()
    for part in SplitTextLinks(0.2, 0.1)(data):
        assert torch.equal(part.edge_index, data.edge_index[:, part.edge_type])
        assert part.text_edges == [str(i) for i in part.edge_type.tolist()]
        assert part.text == data.text
        part.validate()
    assert data.edge_type.numel() == data.num_edges, "the input stays as it is"


def test_a_link_points_as_its_first_edge() -> None:
    data = Data(edge_index=torch.tensor([[3, 1, 0, 2, 2], [1, 3, 2, 0, 2]]), num_nodes=4)
    train, _, _ = SplitTextLinks(0, 0)(data)
    assert sorted(train.edge_label_index.T.tolist()) == [[0, 2], [3, 1]]
    assert train.edge_index.size(1) == 5, "a self-loop is no link, and stays"


def test_depends_on_the_seed() -> None:
    first, again, other = (SplitTextLinks(20, 20, seed=s)(graph())[2].edge_label_index for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert links(first) != links(other)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="the graph has 1"):
        SplitTextLinks(1, 1)(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2))
    with pytest.raises(ValueError, match="edge_index"):
        SplitTextLinks()(Data(num_nodes=2))
    with pytest.raises(ValueError, match="the graph has 'spd', which tells of held-out links"):
        SplitTextLinks(1, 1)(AddSPD()(graph(6, 12)))
    assert repr(SplitTextLinks(1, 0.5)) == "SplitTextLinks(num_val=1, num_test=0.5, seed=0)"


def test_nodes_keep_what_is_theirs_where_there_are_as_many_links() -> None:
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    data = Data(text=list("abcd"), title=list("ABCD"), edge_index=ring, num_nodes=4, orig_edge_index=ring.clone())
    for part in SplitTextLinks(1, 1)(data):
        assert part.text == list("abcd")
        assert part.title == list("ABCD")
        assert torch.equal(part.orig_edge_index, part.edge_index)


def test_held_out_links_are_in_no_other_form_there() -> None:
    data = Data(text=list("abcd"), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    data = T.ToSparseTensor(remove_edge_index=False, layout=torch.sparse_csr)(data)
    parts = SplitTextLinks(1, 1)(data)
    assert ["adj_t" in part for part in parts] == [False] * 3
    unsized = Data(text=list("abcd"), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert [part.num_nodes for part in SplitTextLinks(1, 1, seed=1)(unsized)] == [4, 4, 4]


def test_two_halves_of_an_odd_number() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    train, val, test = SplitTextLinks(0.5, 0.5)(data)
    assert [part.edge_label_index.size(1) for part in (train, val, test)] == [0, 2, 1]
    with pytest.raises(ValueError, match="2 \\+ 2 links are asked for but the graph has 3"):
        SplitTextLinks(0.6, 0.6)(data)
    with pytest.raises(TypeError, match="SplitTextLinks: expected a homogeneous 'Data'"):
        SplitTextLinks()(HeteroData())
