import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, NodeLoader

from pyg_textgraph.data import TextAttributedData, TokenLayout, TokenStore
from pyg_textgraph.sampling import EgoTextDataset, ToTextGraphs
from pyg_textgraph.transforms import AddSPD, EgoTextSampler
from tests.sampling.ego_data import NAMES, verbs

QUESTION = "Which class?"
KEYS = ("input_ids", "num_tokens", "labels", "target", "y", "n_id", "e_id", "edge_index", "edge_type", "x")


def dataset(tokenizer, nodes=range(30), **options) -> EgoTextDataset:
    return EgoTextSampler(6).dataset(verbs(), nodes, tokenizer, question=QUESTION, **options)


def assert_same(a: Data, b: Data) -> None:
    for key in KEYS:
        x, y = torch.as_tensor(a[key]), torch.as_tensor(b[key])
        assert x.equal(y.view_as(x)), key  # out of a batch, a target is of shape (1,)


def node_tokens(data: TextAttributedData, node: int) -> Tensor:
    ptr = data.token_ptr
    return data.input_ids[ptr[node] : ptr[node + 1]]


def test_an_item(tokenizer) -> None:
    item = dataset(tokenizer)[7]
    assert item.validate()
    assert set(item.keys()) == {*KEYS, "num_nodes", "train_mask", "text_edges"}
    assert item.text_edges == [verbs().text_edges[i] for i in item.e_id.tolist()]
    assert item.y.tolist() == [7 % 3]
    assert tokenizer.decode(node_tokens(item, 0)) == f"verb 7 run\n\n{QUESTION}\n A: {NAMES[7 % 3]}<eos>"
    assert tokenizer.decode(item.labels[item.labels >= 0]) == f" {NAMES[7 % 3]}<eos>"
    for place, node in enumerate(item.n_id[1:].tolist(), start=1):
        assert tokenizer.decode(node_tokens(item, place)) == f"verb {node} run"
    assert TokenLayout.from_data(item).is_target.sum() == item.num_tokens[0]


def test_target_and_neighbors_are_cut_apart(tokenizer) -> None:
    plain = EgoTextSampler(6).dataset(verbs(), [3], tokenizer, max_target_tokens=4, max_neighbor_tokens=2)[0]
    assert plain.num_tokens.tolist() == [4] + [2] * 6
    assert "labels" not in plain
    asked = dataset(tokenizer, [3], max_target_tokens=4)[0]  # the question is never cut
    assert tokenizer.decode(node_tokens(asked, 0)).endswith(f"{QUESTION}\n A: motion<eos>")


def test_names_and_labels(tokenizer) -> None:
    data = verbs()
    assert dataset(tokenizer).class_names == NAMES
    del data.class_names
    sampler = EgoTextSampler(2)
    assert (sampler.dataset(data, [0], tokenizer, question=QUESTION)[0].labels == -100).all()
    named = sampler.dataset(data, [4], tokenizer, question=QUESTION, class_names=["a", "b", "c"])[0]
    assert tokenizer.decode(named.labels[named.labels >= 0]) == " b<eos>"
    data.y = data.y[:, None]  # as OGB has it
    column = sampler.dataset(data, [4], tokenizer, question=QUESTION, class_names=["a", "b", "c"])[0]
    assert_same(named, column)
    data.y = torch.full((30,), -1)
    unknown = sampler.dataset(data, [4], tokenizer, question=QUESTION, class_names=["a", "b", "c"])[0]
    assert (unknown.labels == -100).all()
    assert unknown.y.tolist() == [-1]


def test_a_store_is_shared(tokenizer) -> None:
    train = dataset(tokenizer, verbs().train_mask)
    data = verbs()
    del data.text
    test = EgoTextSampler(6).dataset(data, [25], tokenizer, store=train.to_graphs.store, question=QUESTION)
    assert len(train) == 20
    assert_same(test[0], dataset(tokenizer)[25])


def test_transform(tokenizer) -> None:
    item = dataset(tokenizer, transform=AddSPD(4))[2]
    assert item.spd.size(0) == item.num_nodes**2


def test_an_item_is_the_same_alone_in_a_batch_and_in_workers(tokenizer) -> None:
    egos = dataset(tokenizer)
    expected = [egos[i] for i in range(30)]
    assert len(list(egos)) == 30
    assert_same(egos[-1], expected[29])
    for workers in (0, 2):
        for i, batch in enumerate(DataLoader(egos, batch_size=7, num_workers=workers)):
            for j, item in enumerate(batch.to_data_list()):
                assert_same(item, expected[7 * i + j])


def test_epochs_reach_persistent_workers(tokenizer) -> None:
    egos, other = dataset(tokenizer), dataset(tokenizer)
    loader = DataLoader(egos, batch_size=15, num_workers=2, persistent_workers=True)
    for epoch in (0, 1, 2, 0):
        egos.set_epoch(epoch)
        other.set_epoch(epoch)
        assert torch.cat([batch.n_id for batch in loader]).equal(torch.cat([item.n_id for item in other]))


def test_data_sets_of_one_sampler_have_their_own_epochs(tokenizer) -> None:
    sampler = EgoTextSampler(6)
    train, test = (sampler.dataset(verbs(), range(30), tokenizer) for _ in range(2))
    before = test[3].n_id
    train.set_epoch(5)
    assert test[3].n_id.equal(before)


@pytest.mark.parametrize("workers", [0, 2])
def test_node_loader(tokenizer, workers: int) -> None:
    data, seeds = verbs(), torch.randperm(30, generator=torch.Generator().manual_seed(0))
    egos = dataset(tokenizer)
    loader = NodeLoader(
        data, egos.sampler, input_nodes=seeds, batch_size=8, num_workers=workers, transform=egos.to_graphs
    )
    seen = []
    for batch in loader:
        assert isinstance(batch, Batch)
        assert batch.n_id[batch.target].equal(seeds[batch.input_id])
        assert batch.y.equal(data.y[batch.n_id[batch.target]])
        for seed, item in zip(seeds[batch.input_id].tolist(), batch.to_data_list(), strict=True):
            assert_same(item, egos[seed])
            seen.append(seed)
    assert seen == seeds.tolist()


def test_node_loader_for_ordinary_layers() -> None:
    data = verbs()
    sampler = EgoTextSampler(6).bind(data)
    batch = next(iter(NodeLoader(data, sampler, input_nodes=data.train_mask, batch_size=8)))
    assert batch.n_id[: batch.batch_size].tolist() == list(range(8))
    assert batch.batch[: batch.batch_size].tolist() == list(range(8))
    assert batch.x.view(-1).long().equal(batch.n_id)
    assert batch.n_id[batch.edge_index].equal(data.edge_index[:, batch.e_id])
    assert batch.edge_type.equal(batch.e_id)
    assert batch.batch[batch.edge_index[0]].equal(batch.batch[batch.edge_index[1]])


def test_node_loader_re_samples_by_epoch(tokenizer) -> None:
    egos = dataset(tokenizer)
    loader = NodeLoader(verbs(), egos.sampler, batch_size=30, transform=egos.to_graphs)
    first = next(iter(loader)).n_id
    egos.set_epoch(1)
    assert not next(iter(loader)).n_id.equal(first)


def test_empty_texts(tokenizer) -> None:
    data = verbs()
    data.text[3] = ""
    with pytest.raises(ValueError, match="text 3 has no tokens"):
        EgoTextSampler(2).dataset(data, [0], tokenizer)
    item = EgoTextSampler(2).dataset(data, [3], tokenizer, empty="(none)")[0]
    assert tokenizer.decode(node_tokens(item, 0)) == "(none)"


def test_errors(tokenizer) -> None:
    data, sampler = verbs(), EgoTextSampler(2)
    store = TokenStore.from_texts(data.text[:3], tokenizer)
    for options, message in (
        ({}, "'tokenizer' is missing"),
        ({"store": store, "question": QUESTION}, "'tokenizer' is missing"),
        ({"store": store}, "'store' holds 3 texts but the graph has 30 nodes"),
        ({"tokenizer": tokenizer, "class_names": NAMES}, "there is no 'question'"),
        ({"tokenizer": tokenizer, "question": QUESTION, "class_names": ["a"]}, "'y' holds class 2 but there are 1"),
    ):
        with pytest.raises(ValueError, match=message):
            sampler.dataset(data, [0], **options)
    for nodes, message in (
        ([0, 30], "'nodes' holds 30 but the graph has 30 nodes"),
        ([-1], "'nodes' holds -1"),
        (torch.ones(3, dtype=torch.bool), r"the mask 'nodes' is of shape \(3,\), expected \(30,\)"),
        (torch.ones(3), "expected a mask or a list"),
    ):
        with pytest.raises(ValueError, match=message):
            sampler.dataset(data, nodes, tokenizer)
    for y, message in ((None, "has no labels 'y'"), (torch.zeros(30, 2), r"'y' is of shape \(30, 2\)")):
        data.y = y
        with pytest.raises(ValueError, match=message):
            sampler.dataset(data, [0], tokenizer, question=QUESTION, class_names=NAMES)
    with pytest.raises(IndexError):
        dataset(tokenizer)[30]
    with pytest.raises(ValueError, match="the mini-batch has no 'n_id'"):
        ToTextGraphs(verbs(), tokenizer)(verbs())
