"""The benchmark of graph tasks runs from its configurations, stops and goes on, and its metrics count what they say."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.graph_tasks.config import Config, names
from benchmarks.graph_tasks.evaluate import most_frequent
from benchmarks.graph_tasks.run import run
from benchmarks.graph_tasks.task import WriteOut, passes
from pyg_textgraph import datasets
from pyg_textgraph.datasets import KGQA, GraphQA
from pyg_textgraph.datasets.graph_qa import TASKS
from pyg_textgraph.metrics import exact_match


def test_every_configuration_is_valid() -> None:
    assert {f"{table}_{task}" for table in ("graphqa", "paper_graphqa", "zero_shot") for task in TASKS} <= set(names())
    for name in names():
        config = Config.load(name)
        assert hasattr(datasets, config.dataset)
        assert config.graphs_per_step % config.accumulate == 0
    with pytest.raises(ValueError, match="no configuration 'nothing'"):
        Config.load("nothing")


@pytest.mark.parametrize(
    "name", ["graphqa_reachability", "serialized_node_degree", "zero_shot_node_count", "connectivity"]
)
def test_a_row_from_beginning_to_end(name: str, tmp_path: Path) -> None:
    config = replace(Config.load(name), steps=2, graphs_per_step=2, accumulate=1, validations=1, rank=0)
    config = replace(config, rank=2) if name != "connectivity" else config
    rows = run(config, tmp_path, resume=False, smoke=True)
    assert {"exact match", "teacher-forced match", "most frequent training answer"} <= {row["metric"] for row in rows}
    assert all(0 <= row["value"] <= 1 for row in rows)
    assert rows == run(config, tmp_path, resume=True, smoke=True)


def test_exact_match_wants_an_end() -> None:
    assert exact_match([" yes", "yes", None, "yes!"], ["yes", "no", "yes", "yes"]) == 0.25
    assert most_frequent(["a", "a", "b"], ["a", "b"]) == 0.5


def test_the_graph_written_out_has_every_fact() -> None:
    graph = WriteOut()(KGQA(form="plain", sizes=(1, 0, 0))[0])
    question = KGQA(sizes=(1, 0, 0)).questions[0]
    assert graph.num_nodes == 1
    lines = graph.text[0].split("\n")
    assert lines[: len(question.text)] == list(question.text)
    assert len(lines) == len(question.text) + len(question.edges) + 1
    name = [text.split(",")[0] for text in question.text]
    (u, v), relation = question.edges[0], question.relations[0]
    assert f"({name[u]}, {relation}, {name[v]})" in lines
    assert lines[-1] == question.question
    undirected = GraphQA("edge_count", form="plain", sizes=(1, 0, 0))[0]
    assert WriteOut()(undirected).text[0].count("EDGE") == int(undirected.answer)


def test_passes_are_whole() -> None:
    chosen = passes(GraphQA("node_count", sizes=(5, 0, 0)), 12, seed=0).indices
    assert sorted(chosen[:5]) == sorted(chosen[5:10]) == list(range(5))
    assert len(chosen) == 12
