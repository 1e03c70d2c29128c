"""What is hidden is determined by the rest, and the benchmark runs and counts as it says."""

import copy
from pathlib import Path

import pytest
import torch

from benchmarks.graph_writing.run import Settings, run
from benchmarks.graph_writing.task import GRAMMARS, Task, chance, deduced, episodes, exact, is_valid, restored
from pyg_textgraph.data import AddEdge, AddNode, Stop
from pyg_textgraph.nn import WrittenGraph


def test_a_hidden_edge_is_determined() -> None:
    relations = set()
    for episode in episodes("edge", "train", (60, 0, 0), 0):
        [edge] = episode.actions
        relations.add(edge.relation)
        ways = {(edge.relation, edge.source, edge.target)}
        if edge.relation == "SPOUSE":
            ways.add((edge.relation, edge.target, edge.source))
        assert deduced(episode)[0] == ways
        assert deduced(restored(episode, "edge"))[0] == set()
        assert episode.mentions == [edge.target]
        assert episode.text[edge.target].split(",")[0] in episode.instruction
        assert 0 < chance(episode) <= 1
    assert relations == {"CHILD", "SPOUSE"}


def test_a_hidden_marriage_is_determined() -> None:
    for episode in episodes("node", "train", (30, 0, 0), 0):
        node, *edges = episode.actions
        [(wife, husband)] = deduced(episode)[1]
        assert node.text == f"marriage of {episode.text[wife].split(',')[0]} and {episode.text[husband].split(',')[0]}"
        assert [edge.target for edge in edges] == [wife, husband]
        assert deduced(restored(episode, "node"))[1] == set()
        assert episode.mentions == [wife]


def test_splits_share_no_family() -> None:
    train, test = (episodes("edge", split, (30, 0, 30), 0) for split in ("train", "test"))
    assert not {tuple(x.text) for x in train} & {tuple(x.text) for x in test}


def test_what_counts_as_exact() -> None:
    spouse = next(x for x in episodes("edge", "train", (30, 0, 0), 0) if x.actions[0].relation == "SPOUSE")
    [edge] = spouse.actions
    turned = AddEdge(edge.target, edge.source, "SPOUSE")
    whole = restored(spouse, "edge")
    assert exact("edge", spouse, WrittenGraph(whole, [edge, Stop()])) == (True, True)
    assert exact("edge", spouse, WrittenGraph(whole, [turned, Stop()])) == (True, True)
    assert exact("edge", spouse, WrittenGraph(whole, [edge, turned])) == (True, False)
    assert exact("edge", spouse, WrittenGraph(spouse, [Stop()])) == (False, False)
    node = episodes("node", "train", (1, 0, 0), 0)[0]
    text, one, other = node.actions
    whole = restored(node, "node")
    assert exact("node", node, WrittenGraph(whole, [text, other, one, Stop()])) == (True, True)
    assert exact("node", node, WrittenGraph(whole, [text, one, Stop()])) == (True, False)
    assert exact("node", node, WrittenGraph(whole, [AddNode("x"), one, other, Stop()])) == (False, False)


@pytest.mark.parametrize("task", ["edge", "node"])
def test_invalid_graphs_are_seen(task: Task) -> None:
    episode = episodes(task, "train", (1, 0, 0), 0)[0]
    assert is_valid(task, episode, restored(episode, task))
    n = len(episode.text)
    name = GRAMMARS[task].relations[0]
    for u, v, relation in ((0, 0, name), (0, 1, "COUSIN"), (*episode.edge_index[:, 0].tolist(), episode.text_edges[0])):
        wrong = copy.copy(episode)
        wrong.edge_index = torch.cat([episode.edge_index, torch.tensor([[u], [v]])], 1)
        wrong.text_edges = [*episode.text_edges, relation]
        assert not is_valid(task, episode, wrong)
    wrong = copy.copy(episode)
    wrong.text, wrong.num_nodes = [*episode.text, " "], n + 1
    assert not is_valid(task, episode, wrong)


@pytest.mark.parametrize(("task", "method"), [("edge", "gtlm"), ("node", "serialized")])
def test_from_beginning_to_end(task: Task, method: str, tmp_path: Path) -> None:
    settings = Settings(steps=2, batch_size=2, test_graphs=1, rank=2)
    rows = run(task, method, settings, tmp_path, resume=False, smoke=True)  # type: ignore[arg-type]
    values = {(row["case"], row["metric"]): row["value"] for row in rows}
    assert values[f"{method} test=1", "valid"] == values[f"{method}, untrained test=1", "valid"] == 1
    assert (f"{method} test=1", f"exact {task}") in values
    assert ("peer_value" in rows[0]) == (task == "edge")
    assert rows == run(task, method, settings, tmp_path, resume=True, smoke=True)  # type: ignore[arg-type]
