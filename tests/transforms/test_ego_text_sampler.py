import pickle

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler
from torch_geometric.utils import subgraph

from pyg_textgraph.data import TextAttributedData, tokenize
from pyg_textgraph.transforms import AddSPD, EgoTextSampler
from tests.sampling.ego_data import NAMES, verbs


def test_the_ego_of_the_target() -> None:
    data = verbs()
    data.target = 7
    before = data.to_dict()
    ego = EgoTextSampler(num_neighbors=6)(data)
    assert isinstance(ego, TextAttributedData)
    assert ego.validate()
    assert ego.num_nodes == 7
    assert ego.target == 0
    assert int(ego.n_id[0]) == 7
    assert ego.text == [f"verb {v} run" for v in ego.n_id.tolist()]
    assert ego.x.view(-1).tolist() == ego.n_id.tolist()
    assert ego.y.equal(data.y[ego.n_id])
    assert ego.train_mask.equal(data.train_mask[ego.n_id])
    assert ego.class_names == NAMES
    index, kind = subgraph(ego.n_id, data.edge_index, data.edge_type, num_nodes=30)
    assert ego.n_id[ego.edge_index].equal(index)
    assert ego.edge_type.equal(kind)
    assert ego.e_id.equal(kind)
    assert ego.text_edges == [f"edge {e}" for e in ego.e_id.tolist()]
    assert data.to_dict() == before


def test_plain_data_and_public_names() -> None:
    data = Data(
        edge_index=torch.tensor([[0, 1], [1, 2]]), text_nodes=["a", "b", "c"], num_nodes=3, target=torch.tensor([1])
    )
    assert sorted(EgoTextSampler(5)(data).text) == ["a", "b", "c"]
    assert EgoTextSampler(5, num_hops=0)(data).text == ["b"]


def test_tokens_follow_their_nodes(tokenizer) -> None:
    data = verbs()
    data.target = 3
    sampler = EgoTextSampler(5)
    first_sampled, first_tokenized = tokenize(sampler(data), tokenizer), sampler(tokenize(data, tokenizer))
    assert first_tokenized.input_ids.equal(first_sampled.input_ids)
    assert first_tokenized.num_tokens.equal(first_sampled.num_tokens)


def test_pair_features_of_the_whole_graph_are_dropped_and_new_ones_fit() -> None:
    data = AddSPD(4)(verbs())
    data.target = 3
    ego = T.Compose([EgoTextSampler(5), AddSPD(4)])(data)
    assert "spd" not in EgoTextSampler(5)(data)
    assert ego.spd.size(0) == 36


def test_an_ego_of_an_ego_keeps_the_original_ids() -> None:
    data = verbs()
    data.target = 3
    wide, narrow = EgoTextSampler(20)(data), EgoTextSampler(4, 1)
    assert narrow(wide).text == [f"verb {v} run" for v in narrow(wide).n_id.tolist()]


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
@pytest.mark.parametrize("keep", [True, False])
def test_sparse_adjacency(layout: torch.layout, keep: bool) -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), edge_weight=torch.tensor([1.0, 2, 3, 4]))
    data.num_nodes, data.target = 4, 1
    sparse = T.ToSparseTensor(layout=layout, remove_edge_index=not keep)(data.clone())
    dense, ego = EgoTextSampler(2, 1)(data), EgoTextSampler(2, 1)(sparse)
    assert "adj_t" not in ego
    assert ego.n_id.equal(dense.n_id)
    assert set(zip(*ego.edge_index.tolist(), ego.edge_weight.tolist(), strict=True)) == set(
        zip(*dense.edge_index.tolist(), dense.edge_weight.tolist(), strict=True)
    )


def test_a_new_graph_is_noticed() -> None:
    sampler = EgoTextSampler(10)
    for seed in range(3):
        data = verbs(seed=seed)
        data.target = 0
        assert sampler(data).n_id.equal(EgoTextSampler(10)(data).n_id)


def test_a_change_in_place_is_noticed() -> None:
    data, sampler = (
        TextAttributedData(text=list("abc"), edge_index=torch.tensor([[0], [1]]), target=0),
        EgoTextSampler(5),
    )
    assert sampler(data).n_id.tolist() == [0, 1]
    data.edge_index[1, 0] = 2
    assert sampler(data).n_id.tolist() == [0, 2]


def test_texts_of_edges_must_fit() -> None:
    data = verbs()
    data.target = 0
    sparse = T.ToSparseTensor()(data)
    with pytest.raises(ValueError, match="'text_edges' needs the order of 'edge_index', and only 'adj_t' is there"):
        EgoTextSampler(5)(sparse)
    data = verbs()
    data.target, data.text_edges = 0, ["one"]
    with pytest.raises(ValueError, match="'text_edges' has 1 entries but the graph has 90 edges"):
        EgoTextSampler(5)(data)
    del data.text_edges
    assert EgoTextSampler(5)(T.ToUndirected()(data)).validate()


def test_egos_of_what_undirected_made(tokenizer) -> None:
    data = T.ToUndirected()(verbs())
    with pytest.raises(ValueError, match=r"set them afterwards, or delete data\.text_edges"):
        EgoTextSampler(5).dataset(data, [0], tokenizer)
    del data.text_edges
    assert EgoTextSampler(5).dataset(data, [0], tokenizer)[0].validate()


def test_edges_made_in_inference_mode() -> None:
    with torch.inference_mode():
        edge_index = torch.tensor([[0], [1]])
    assert EgoTextSampler(5)(Data(edge_index=edge_index, text=["a", "b"], num_nodes=2, target=0)).num_nodes == 2


def test_epochs() -> None:
    data = verbs()
    data.target = 3
    sampler = EgoTextSampler(5)
    bound = sampler.bind(data)
    first = sampler(data).n_id
    sampler.set_epoch(1)
    assert (sampler.epoch, bound.epoch) == (1, 0)
    assert not sampler(data).n_id.equal(first)
    sampler.set_epoch(0)
    assert sampler(data).n_id.equal(first)


def test_pickles() -> None:
    data = verbs()
    data.target = 3
    sampler = EgoTextSampler(5, seed=2).bind(data)
    assert pickle.loads(pickle.dumps(sampler))(data).n_id.equal(sampler(data).n_id)


def test_is_a_transform_and_a_sampler() -> None:
    sampler = EgoTextSampler(5, num_hops=3, seed=1)
    assert isinstance(sampler, BaseSampler)
    assert repr(sampler) == "EgoTextSampler(5, num_hops=3, seed=1)"


def test_errors() -> None:
    data = verbs()
    with pytest.raises(ValueError, match="no 'target'"):
        EgoTextSampler(5)(data)
    for bad in (-1, 30, torch.tensor([1, 2])):
        data.target = bad
        with pytest.raises(ValueError, match="'target' is"):
            EgoTextSampler(5)(data)
    with pytest.raises(TypeError, match="EgoTextSampler: expected a homogeneous 'Data'"):
        EgoTextSampler(5)(HeteroData())
    with pytest.raises(ValueError, match="neither 'edge_index' nor 'adj_t'"):
        EgoTextSampler(5)(Data(num_nodes=3, target=0))
    with pytest.raises(ValueError, match="holds node 9"):
        EgoTextSampler(5)(Data(edge_index=torch.tensor([[0], [9]]), num_nodes=3, target=0))
    for name in ("num_neighbors", "num_hops"):
        with pytest.raises(ValueError, match=f"'{name}' is -1"):
            EgoTextSampler(**{"num_neighbors": 5, name: -1})
    with pytest.raises(ValueError, match=r"use sampler\.bind\(data\)"):
        EgoTextSampler(5).sample(torch.tensor([0]))
    with pytest.raises(NotImplementedError, match="nodes, not edges"):
        EgoTextSampler(5).sample_from_edges(None)
