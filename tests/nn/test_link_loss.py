import os
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.nn import KnownLinks, false_negatives, link_loss, pair_filter
from tests.processes import leave_group


def embeddings(size: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, size, 3, generator=generator, dtype=torch.float64)
    return query, key


def test_by_hand() -> None:
    query = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
    key = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double()
    e = torch.e
    expected = -(torch.tensor([e / (e + 1), e**2 / (e**2 + e**2)]).double().log().mean())
    assert_close(link_loss(query, key), expected, atol=1e-6, rtol=1e-6)
    halved = -(torch.tensor([e**0.5 / (e**0.5 + 1), 0.5]).double().log().mean())
    assert_close(link_loss(query, key, temperature=2.0), halved, atol=1e-6, rtol=1e-6)


def test_pairs_that_see_their_answer_are_left_out() -> None:
    pair = torch.tensor([[0, 1, 2, 3, 4], [5, 6, 7, 3, 8]])
    query_neighbors = torch.tensor([[9, 5], [2, -1], [3, 4], [-1, -1], [-1, -1]])  # 0 sees 5
    key_neighbors = torch.tensor([[1, 2], [7, 1], [-1, -1], [-1, -1], [-1, -1]])  # 6 sees 1; 3 is linked to itself
    keep = pair_filter(pair, query_neighbors, key_neighbors)
    assert keep.tolist() == [False, False, True, False, True]
    query, key = embeddings(5)
    assert_close(link_loss(query, key, keep=keep), link_loss(query[[2, 4]], key[[2, 4]]))
    assert link_loss(query, key, keep=torch.zeros(5, dtype=torch.bool)) == 0


def test_false_negatives_on_a_hand_made_batch() -> None:
    query_node, key_node = torch.tensor([0, 0, 1, 2]), torch.tensor([5, 6, 5, 0])
    hidden = false_negatives(query_node, key_node, key_node)
    assert hidden.int().tolist() == [
        [1, 0, 1, 1],  # its positive, another copy of it, itself
        [0, 1, 0, 1],
        [1, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    known = KnownLinks(torch.tensor([[0, 6, 9], [5, 0, 1]]), num_nodes=10)
    hidden = false_negatives(query_node, key_node, key_node, known)
    assert hidden[:2].tolist() == [[True, True, True, True], [True, True, True, True]], "0–5 and 0–6 are links"
    query, key = embeddings()
    loss = partial(link_loss, query, key, query_node=query_node, key_node=key_node)
    rows = query @ key.T
    expected = [rows[0, [0, 1]], rows[1, [1, 0, 2]], rows[2, [2, 1, 3]], rows[3, [3, 0, 1, 2]]]
    assert_close(loss(), -torch.stack([row.log_softmax(0)[0] for row in expected]).mean())
    expected[:2] = [rows[0, [0]], rows[1, [1]]]
    assert_close(loss(known=known), -torch.stack([row.log_softmax(0)[0] for row in expected]).mean())


def test_known_links_go_both_ways() -> None:
    known = KnownLinks(torch.tensor([[0, 3], [1, 2]]), num_nodes=4)
    grid = known(torch.arange(4)[:, None], torch.arange(4))
    assert grid.nonzero().tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert not KnownLinks(torch.empty(2, 0, dtype=torch.long), 4)(torch.arange(4), torch.arange(4)).any()


def test_wrong_arguments_are_named() -> None:
    query, key = embeddings()
    with pytest.raises(ValueError, match="'key'"):
        link_loss(query, key[:2])
    with pytest.raises(ValueError, match="'known'"):
        link_loss(query, key, known=KnownLinks(torch.tensor([[0], [1]]), 2))


PAIR = torch.tensor([[0, 1, 2, 3, 4], [5, 6, 5, 7, 1]])
KEEP = torch.tensor([True, True, True, False, True])


def joint_loss(model: torch.nn.Module, x: Tensor, rows: Tensor) -> Tensor:
    query, key = model(x[:, rows].flatten(0, 1)).chunk(2)
    known = KnownLinks(torch.tensor([[0, 1], [6, 7]]), 8)
    return link_loss(
        query, key, keep=KEEP[rows], query_node=PAIR[0, rows], key_node=PAIR[1, rows], known=known, temperature=0.5
    )


def linear() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 3).double()


def rank_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(linear())
    rows = torch.arange(5)[rank::2]  # three pairs here, two there
    loss = joint_loss(model, torch.stack(embeddings(5)), rows)
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    torch.save([loss.detach(), grads], f"{folder}/{rank}.pt")
    leave_group()


def test_two_processes_equal_one_with_the_joint_batch(tmp_path: Path) -> None:
    mp.start_processes(rank_of_two, (str(tmp_path),), nprocs=2, start_method="spawn")
    model = linear()
    loss = joint_loss(model, torch.stack(embeddings(5)), torch.arange(5))
    loss.backward()
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert_close((results[0][0] + results[1][0]) / 2, loss.detach())
    for _, grads in results:
        assert_close(grads, [p.grad for p in model.parameters()])
