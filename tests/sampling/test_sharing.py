"""One copy of the graph and its tokens for all workers and ranks, and every node once over the ranks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch_geometric.loader import DataLoader as GraphLoader
from torch_geometric.loader import NodeLoader

from pyg_textgraph.data import TokenStore
from pyg_textgraph.sampling import CSRGraph, EgoTextDataset
from pyg_textgraph.transforms import EgoTextSampler
from tests.sampling.ego_data import verbs

NUM_TEXTS, NUM_TOKENS = 20_000, 4_000_000


class Footprint(Dataset[torch.Tensor]):
    """An item says what share of the store's and of the graph's pages is in memory, and only this process's own."""

    def __init__(self, store: TokenStore, graph: CSRGraph) -> None:
        self.store, self.graph = store, graph

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([pages(np.asarray(self.store._ids)), pages(self.graph.neighbor)])


def pages(array: NDArray[np.integer]) -> tuple[float, float]:
    """Shares of an array's pages in memory, and of those that no other process has; files are nobody's own."""
    array[:: 4096 // array.itemsize].sum()
    size = os.sysconf("SC_PAGE_SIZE")
    first, last = array.ctypes.data // size, (array.ctypes.data + array.nbytes) // size
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(8 * first)
        flags = np.frombuffer(file.read(8 * (last - first)), np.uint64)
    present, of_file, exclusive = (flags >> np.uint64(bit) & np.uint64(1) == 1 for bit in (63, 61, 56))
    return present.mean(), (present & exclusive & ~of_file).mean()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("where", "start"), [("memory", "fork"), ("memory", "spawn"), ("disk", "spawn")])
def test_workers_hold_no_copy(tmp_path: Path, where: str, start: str) -> None:
    store = TokenStore(torch.ones(NUM_TOKENS, dtype=torch.int32), torch.full((NUM_TEXTS,), NUM_TOKENS // NUM_TEXTS))
    edges = np.random.default_rng(0).integers(NUM_TEXTS, size=(2, 500_000))
    graph = CSRGraph.from_edge_index(edges, NUM_TEXTS)
    if where == "disk":
        store.save(tmp_path / "store")
        graph.save(tmp_path / "graph")
        store, graph = TokenStore.load(tmp_path / "store"), CSRGraph.load(tmp_path / "graph")
    assert pages(np.arange(10**6))[1] > 0.9  # this is what a copy looks like
    workers = {"fork": 2, "spawn": 1}[start]
    loader = DataLoader(Footprint(store, graph), batch_size=None, num_workers=workers, multiprocessing_context=start)
    for item in loader:
        present, own = item.T
        assert (present > 0.9).all()
        assert (own < 0.1).all()


def test_a_graph_in_shared_memory_is_the_same_graph() -> None:
    from multiprocessing.reduction import ForkingPickler

    data = verbs()
    sampler = EgoTextSampler(6).bind(data)
    before = sampler.sample(torch.arange(30))
    sent = [ForkingPickler.loads(ForkingPickler.dumps(sampler)) for _ in range(2)]
    assert all(x is not None and x.is_shared() for x in sampler._graph._shared)
    for other in (sampler, *sent):
        after = other.sample(torch.arange(30))
        assert np.array_equal(after.node, before.node)
        assert np.array_equal(after.edge, before.edge)


def test_a_saved_graph_is_the_same_graph(tokenizer, tmp_path: Path) -> None:
    data = verbs()
    CSRGraph.from_edge_index(data.edge_index.numpy(), 30).save(tmp_path)
    loaded = EgoTextSampler(6).dataset(data, range(30), tokenizer, graph=CSRGraph.load(tmp_path))
    for expected, item in zip(egos(tokenizer), loaded, strict=True):
        assert item.n_id.equal(expected.n_id)
        assert item.e_id.equal(expected.e_id)
    with pytest.raises(ValueError, match="'graph' has 30 nodes and 90 edges but the data has 30 and 60"):
        EgoTextSampler(6).bind(verbs().edge_subgraph(torch.arange(60)), CSRGraph.load(tmp_path))
    whole = (tmp_path / "kept.npy").read_bytes()
    (tmp_path / "kept.npy").write_bytes(whole[:-5])
    with pytest.raises(ValueError, match=r"CSRGraph: .*kept.npy is damaged"):
        CSRGraph.load(tmp_path)
    np.save(tmp_path / "kept.npy", np.arange(4, dtype=np.int32))
    with pytest.raises(ValueError, match="do not fit each other"):
        CSRGraph.load(tmp_path)
    (tmp_path / "graph.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"graph.json is missing"):
        CSRGraph.load(tmp_path)


def egos(tokenizer, nodes=range(30)) -> EgoTextDataset:
    return EgoTextSampler(6).dataset(verbs(), nodes, tokenizer)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_nodes_of_an_epoch(tokenizer, ranks: int) -> None:
    alone = egos(tokenizer)
    for epoch in (0, 1):
        seen = []
        for rank in range(ranks):
            mine = egos(tokenizer)
            mine.set_epoch(epoch)
            sampler = DistributedSampler(mine, ranks, rank, shuffle=True, seed=7)
            sampler.set_epoch(epoch)
            seen.append(list(GraphLoader(mine, batch_size=30 // ranks // 5, sampler=sampler)))
        alone.set_epoch(epoch)
        nodes = torch.cat([batch.n_id[batch.ptr[:-1]] for batches in seen for batch in batches])
        assert sorted(nodes.tolist()) == list(range(30))
        # a step's batches together are the same nodes, however many ranks share them, and an ego depends on no rank
        order = torch.randperm(30, generator=torch.Generator().manual_seed(7 + epoch)).tolist()
        for step, batches in enumerate(zip(*seen, strict=True)):
            joint = {int(item.n_id[0]): item for batch in batches for item in batch.to_data_list()}
            if ranks < 3:
                assert set(joint) == set(order[6 * step : 6 * step + 6])
            for node, item in joint.items():
                assert item.n_id.equal(alone[node].n_id)
                assert item.input_ids.equal(alone[node].input_ids)


def test_the_rest_is_padded_or_dropped(tokenizer) -> None:
    """As PyTorch does it: the first nodes of the order once more, or the last ones left out."""
    few = egos(tokenizer, range(10, 17))
    shares = [list(DistributedSampler(few, 3, rank, seed=1)) for rank in range(3)]
    assert [len(share) for share in shares] == [3, 3, 3]
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1)).tolist()
    assert [i for step in zip(*shares, strict=True) for i in step] == order + order[:2]
    dropped = [list(DistributedSampler(few, 3, rank, seed=1, drop_last=True)) for rank in range(3)]
    assert [i for step in zip(*dropped, strict=True) for i in step] == order[:6]
    # for scores, every node exactly once: a slice per rank
    parts = [few.nodes[rank::3] for rank in range(3)]
    assert sorted(torch.cat(parts).tolist()) == list(range(10, 17))


def test_ranks_share_a_node_loaders_seeds(tokenizer) -> None:
    seeds = torch.arange(5, 25)
    seen = []
    for rank in range(2):
        mine = egos(tokenizer)
        share = DistributedSampler(range(len(seeds)), 2, rank, seed=3)
        loader = NodeLoader(
            verbs(), mine.sampler, input_nodes=seeds, batch_size=4, sampler=share, transform=mine.to_graphs
        )
        seen += [seeds[batch.input_id] for batch in loader]
    assert torch.cat(seen).sort().values.equal(seeds)


@pytest.mark.parametrize("nothing", [[], torch.tensor([]), torch.empty(0, dtype=torch.long), torch.zeros(30) > 0])
def test_no_nodes(tokenizer, nothing) -> None:
    none = egos(tokenizer, nothing)
    assert len(none) == 0
    assert none.nodes.dtype == torch.long
    assert list(GraphLoader(none, batch_size=4)) == []
    assert none.__getitems__([]) == []
    with pytest.raises(IndexError):
        none[0]


def test_a_store_is_written_as_the_texts_come(tokenizer, tmp_path: Path) -> None:
    texts = [f"verb {i} run" for i in range(23)]
    asked = iter(texts)
    written = TokenStore.write(tmp_path / "store", asked, tokenizer, chunk=4)
    whole = TokenStore.from_texts(texts, tokenizer)
    for store in (written, TokenStore.load(tmp_path / "store")):
        assert len(store) == 23
        for got, expected in zip(store.gather(torch.arange(23)), whole.gather(torch.arange(23)), strict=True):
            assert got.equal(expected)
    with pytest.raises(ValueError, match="text 9 has no tokens"):
        TokenStore.write(tmp_path / "store", ("" if i == 9 else "a" for i in range(20)), tokenizer, chunk=4)
    assert len(TokenStore.load(tmp_path / "store")) == 23
    assert len(TokenStore.write(tmp_path / "none", [], tokenizer)) == 0


def test_a_store_that_was_replaced_does_not_reach_a_worker(tmp_path: Path) -> None:
    import pickle

    TokenStore(torch.arange(50), torch.tensor([50])).save(tmp_path)
    sent = pickle.dumps(TokenStore.load(tmp_path))
    TokenStore(torch.arange(60), torch.tensor([60])).save(tmp_path)
    with pytest.raises(ValueError, match="another store was written to"):
        pickle.loads(sent)


def test_more_than_two_to_the_31_tokens(tmp_path: Path) -> None:
    """A file with a hole in it: 8 GiB of tokens, a page of disk."""
    num_tokens, last = 2**31 + 10, 4
    with open(tmp_path / "ids.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (num_tokens,)})
        file.seek(4 * (num_tokens - last), os.SEEK_CUR)
        file.write(np.arange(1, last + 1, dtype=np.int32).tobytes())
    np.save(tmp_path / "ptr.npy", np.array([0, 3, num_tokens - last, num_tokens]))
    (tmp_path / "store.json").write_text(json.dumps({"num_texts": 3, "num_tokens": num_tokens}))
    store = TokenStore.load(tmp_path)
    ids, count = store.gather(torch.tensor([2, 0, 1]), max_tokens=3)
    assert ids.tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 0]
    assert count.tolist() == [3, 3, 3]
    assert store[-1].tolist() == [1, 2, 3, 4]
