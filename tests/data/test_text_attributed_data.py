"""One test per way in which PyG's containers have been seen to misfile a text graph."""

import copy
import io

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler

FEATURES = (AddSPD(4), AddRRWP(3), AddMagneticLaplacian(q=0.25))


def graph(num_nodes: int, num_edges: int, seed: int = 0, features: bool = True) -> TextAttributedData:
    generator = torch.Generator().manual_seed(seed)
    num_tokens = torch.randint(1, 5, (num_nodes,), generator=generator)
    ids = torch.randint(3, 90, (int(num_tokens.sum()),), generator=generator)
    labels = torch.full_like(ids, -100)
    labels[int(num_tokens[0]) - 1] = ids[int(num_tokens[0]) - 1]
    data = TextAttributedData(
        text=[f"text {i}" for i in range(num_nodes)],
        edge_index=torch.randint(0, num_nodes, (2, num_edges), generator=generator),
        input_ids=ids,
        num_tokens=num_tokens,
        labels=labels,
        target=0,
    )
    for transform in FEATURES if features else ():
        data = transform(data)
    return data


def assert_same(actual: Data, expected: Data) -> None:
    assert set(actual.keys()) == set(expected.keys())
    for key, value in expected:
        if key == "target":
            assert int(actual.target) == int(value)
        elif isinstance(value, torch.Tensor):
            assert torch.equal(actual[key], value), key
        else:
            assert actual[key] == value, key


# N = 1 (pair features as long as the nodes), E = N² (as long as the edges), and sizes that fit neither
SIZES = [(1, 0), (1, 1), (2, 4), (3, 9), (5, 7), (4, 0)]


def test_batches_come_apart_as_they_were() -> None:
    graphs = [graph(n, e, seed) for seed, (n, e) in enumerate(SIZES)]
    batch = Batch.from_data_list(graphs)
    assert batch.num_graphs == len(SIZES)
    for i, data in enumerate(graphs):
        assert_same(batch[i], data)
    for actual, data in zip(batch.to_data_list(), graphs, strict=True):
        assert_same(actual, data)


def test_targets_count_over_the_batch_and_tokens_do_not() -> None:
    batch = Batch.from_data_list([graph(3, 2, 0), graph(2, 2, 1), graph(4, 2, 2)])
    assert batch.target.tolist() == [0, 3, 5]
    assert int(batch.input_ids.max()) < 90
    assert batch.labels.min() == -100
    assert batch.validate()


def test_follow_batch() -> None:
    graphs = [graph(3, 2, 0), graph(2, 2, 1)]
    batch = Batch.from_data_list(graphs, follow_batch=["input_ids"])
    assert batch.input_ids_ptr.tolist() == [0, graphs[0].input_ids.numel(), batch.input_ids.numel()]


@pytest.mark.parametrize("workers", [0, 2])
def test_loads_in_workers(workers: int) -> None:
    graphs = [graph(n, e, seed) for seed, (n, e) in enumerate(SIZES)]
    for start, batch in enumerate(DataLoader(graphs, batch_size=2, num_workers=workers)):
        for i in range(2):
            assert_same(batch[i], graphs[2 * start + i])


def test_num_nodes_does_not_follow_from_features() -> None:
    data = TextAttributedData(num_tokens=torch.tensor([2, 1]), input_ids=torch.arange(3), nodes_of_interest=[1, 2, 3])
    assert data.num_nodes == 2
    assert TextAttributedData(text=["a", "b", "c"]).num_nodes == 3
    with pytest.raises(ValueError, match="'num_nodes' is not set"):
        TextAttributedData(edge_index=torch.tensor([[0], [1]])).validate()


def test_attributes_are_told_by_name() -> None:
    data = graph(1, 1)
    for key in ("spd", "rrwp", "input_ids", "labels", "target", "magnetic_eigvals"):
        assert not data.is_node_attr(key), key
        assert not data.is_edge_attr(key), key
    assert data.is_node_attr("num_tokens")
    assert data.is_node_attr("text")


def test_subgraph_takes_tokens_along_and_drops_pair_features() -> None:
    data = graph(5, 12, 3)
    keep = torch.tensor([4, 0, 2])
    part = data.subgraph(keep)
    ptr = data.token_ptr
    assert part.input_ids.tolist() == torch.cat([data.input_ids[ptr[n] : ptr[n + 1]] for n in keep]).tolist()
    assert part.text == ["text 4", "text 0", "text 2"]
    assert int(part.target) == 1
    assert "spd" not in part
    assert "magnetic_eigvals" not in part
    assert part.validate()
    assert data.num_nodes == 5
    with pytest.raises(ValueError, match="leaves out the target"):
        data.subgraph(torch.tensor([1, 2]))


def named(data: TextAttributedData) -> set[tuple[int, int, str, int]]:
    rows = zip(data.edge_index.T.tolist(), data.text_edges, data.edge_type.tolist(), strict=True)
    return {(u, v, text, kind) for (u, v), text, kind in rows}


def test_texts_of_edges_stay_with_them() -> None:
    edges = {"edge_index": torch.tensor([[2, 0, 2, 1], [0, 2, 1, 0]]), "text_edges": ["a", "b", "c", "d"]}
    data = TextAttributedData(text=list("xyz"), edge_type=torch.tensor([0, 1, 2, 3]), **edges)
    for by_row in (True, False):
        out = data.sort(sort_by_row=by_row)
        assert out.is_sorted(by_row)
        assert named(out) == named(data)
    assert data.text_edges == ["a", "b", "c", "d"]
    twice = TextAttributedData(
        text=list("xy"), edge_index=torch.tensor([[1, 0, 1], [0, 1, 0]]), text_edges=["a", "b", "a"]
    )
    out = twice.coalesce()
    assert (out.edge_index.tolist(), out.text_edges) == ([[0, 1], [1, 0]], ["b", "a"])
    twice.text_edges = ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"'text_edges' of edges \(1, 0\) is 'a' and 'c', expected one"):
        twice.coalesce()
    twice.text_edges = ["a"]
    batch = Batch.from_data_list([data, data]).sort()
    ends = batch.edge_index - batch.ptr[batch.batch[batch.edge_index[0]]]
    flat = [text for graph in batch.text_edges for text in graph]
    assert set(zip(*ends.tolist(), flat, strict=True)) == {(u, v, text) for u, v, text, _ in named(data)}
    for wrong in (twice.sort, twice.coalesce, twice.validate):
        with pytest.raises(ValueError, match="'text_edges' has 1 entries but the graph has 3 edges"):
            wrong()


def test_one_class_is_the_graphs_also_where_there_is_one_edge() -> None:
    data = TextAttributedData(text=list("xy"), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([1]))
    assert not data.is_edge_attr("y")
    assert data.edge_subgraph(torch.tensor([], dtype=torch.long)).y.tolist() == [1]


def test_fewer_edges_drop_pair_features() -> None:
    data = AddSPD()(TextAttributedData(text=list("xyz"), edge_index=torch.tensor([[0, 1], [1, 2]])))
    assert "spd" in data
    assert "spd" not in data.edge_subgraph(torch.tensor([0]))


def test_survives_saving_with_safe_loading() -> None:
    data = graph(4, 6)
    file = io.BytesIO()
    torch.save(data, file)
    file.seek(0)
    assert_same(torch.load(file, weights_only=True), data)


def test_copies_keep_the_storage() -> None:
    for made in (copy.copy(graph(1, 1)), copy.deepcopy(graph(1, 1))):
        assert not made.is_node_attr("spd")
    assert_same(TextAttributedData.from_data(graph(3, 4)), graph(3, 4))


def test_reads_public_names() -> None:
    data = TextAttributedData.from_data(Data(edge_index=torch.tensor([[0], [1]]), text_nodes=["a", "b"], num_nodes=2))
    assert data.text == ["a", "b"]
    assert data.num_nodes == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": torch.tensor([[0, 1], [1, 9]])}, "'edge_index' holds node 9 but the graph has 3 nodes"),
        ({"edge_index": torch.tensor([[0, 1], [1, -1]])}, "'edge_index' holds node -1"),
        ({"edge_index": torch.tensor([[0.0], [1.0]])}, "'edge_index' is torch.float32"),
        ({"target": 3}, r"'target' is \[3\], expected node indices in \[0, 3\)"),
        ({"input_ids": torch.arange(2)}, "'input_ids' is torch.int64 of shape"),
        ({"input_ids": torch.arange(6).float()}, "'input_ids' is torch.float32"),
        ({"labels": torch.arange(5)}, "'labels' is torch.int64 of shape"),
        ({"num_tokens": torch.tensor([3, 4, -1])}, "'num_tokens' holds -1"),
        ({"num_tokens": torch.tensor([3, 3])}, "'num_tokens' is torch.int64 of shape"),
        ({"text": ["a"]}, "'text' has 1 entries"),
    ],
)
def test_bad_fields_are_named(change: dict[str, object], message: str) -> None:
    fields = {
        "text": ["a", "b", "c"],
        "edge_index": torch.tensor([[0], [1]]),
        "num_tokens": torch.tensor([1, 2, 3]),
        "input_ids": torch.arange(6),
        "num_nodes": 3,
    }
    TextAttributedData(**fields).validate()
    with pytest.raises(ValueError, match=message):
        TextAttributedData(**(fields | change)).validate()


RING = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])  # as many edges as nodes


@pytest.mark.parametrize("key", ["text_edges", "edge_text"])
def test_lists_of_nodes_and_of_edges_are_told_apart_where_they_are_equally_long(key: str) -> None:
    data = TextAttributedData(text=list("abcd"), edge_index=RING, title=list("ABCD"), **{key: ["01", "12", "23", "30"]})
    out = data.subgraph(torch.tensor([1, 2, 0]))
    assert (out.text, out.title) == (["b", "c", "a"], ["B", "C", "A"])
    assert out[key] == ["01", "12"]
    assert data.edge_subgraph(torch.tensor([3]))[key] == ["30"]
    assert data.edge_subgraph(torch.tensor([3])).title == list("ABCD")


@pytest.mark.parametrize("num_nodes", [2, 3])
def test_what_tells_of_the_graph_is_not_cut(num_nodes: int) -> None:
    data = TextAttributedData(
        text=list("abc")[:num_nodes],
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        class_names=["x", "y"],
        graph_id=torch.tensor([7]),
        target=0,
    )
    for out in (data.subgraph(torch.tensor([0])), data.edge_subgraph(torch.tensor([0])), EgoTextSampler(0)(data)):
        assert out.class_names == ["x", "y"]
        assert out.graph_id.tolist() == [7]


def test_only_one_homogeneous_graph_is_read() -> None:
    with pytest.raises(TypeError, match="expected a homogeneous 'Data', got 'HeteroData'"):
        TextAttributedData.from_data(HeteroData())
    with pytest.raises(TypeError, match="got a batch of graphs"):
        TextAttributedData.from_data(Batch.from_data_list([graph(2, 1)]))
