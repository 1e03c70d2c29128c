"""The benchmark of graph tasks runs from its configurations, stops and goes on, and its metrics count what they say."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import ByT5Tokenizer

from benchmarks.graph_tasks.config import Config, names
from benchmarks.graph_tasks.errors import errors, profile, thirds
from benchmarks.graph_tasks.evaluate import most_frequent
from benchmarks.graph_tasks.figures import asked_nodes, by_layer, looks
from benchmarks.graph_tasks.run import run
from benchmarks.graph_tasks.task import make_data, make_model, passes
from pyg_textgraph import datasets
from pyg_textgraph.datasets import KGQA, GraphQA, GraphQuestion
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
    (tmp_path / "rows.json").unlink()  # as if it had been stopped before its end
    with pytest.raises(ValueError, match="is of a run with"):
        run(replace(config, seed=1), tmp_path, resume=True, smoke=True)


def test_exact_match_wants_an_end() -> None:
    assert exact_match([" yes", "yes", None, "yes!"], ["yes", "no", "yes", "yes"]) == 0.25
    assert most_frequent(["a", "a", "b"], ["a", "b"]) == 0.5


def test_the_graph_written_out_has_every_fact() -> None:
    sizes = (2, 1, 1)
    [graph, *_] = make_data(Config.load("kgqa_serialized"), "train", ByT5Tokenizer(), sizes)
    question = KGQA(sizes=sizes).questions[0]
    assert graph.num_nodes == 1
    text = ByT5Tokenizer().decode(graph.input_ids)
    assert all(f"{i}: {node}\n" in text for i, node in enumerate(question.text))
    edges = list(zip(question.edges, question.relations, strict=True))
    assert all(f"({u}, {name}, {v})\n" in text for (u, v), name in edges)
    assert text.count("(") == len(edges)
    assert text.endswith(f"\n\n{question.question}\n A: {question.answer}</s>")


def test_undirected_edges_are_written_once() -> None:
    config = replace(Config.load("serialized_node_degree"), arguments={"task": "edge_count"})
    for graph in make_data(config, "train", ByT5Tokenizer(), (5, 1, 1)):
        assert ByT5Tokenizer().decode(graph.input_ids).count("(") == int(graph.answer)


def test_passes_are_whole() -> None:
    chosen = passes(GraphQA("node_count", sizes=(5, 0, 0)), 12, seed=0).indices
    assert sorted(chosen[:5]) == sorted(chosen[5:10]) == list(range(5))
    assert len(chosen) == 12


def test_attention_by_layer() -> None:
    config = replace(Config.load("connectivity"), rank=0)
    model, _ = make_model(config, smoke=True)
    graphs = list(make_data(config, "test", model.tokenizer, (2, 2, 4)))
    for graph in graphs:
        assert {graph.text[node] for node in asked_nodes(graph).tolist()} == set(
            graph.question[3:-1].split(" connected to ")
        )
    with torch.no_grad():
        for parameter in model.graph_bias.parameters():
            parameter.normal_()
    before = looks(model, graphs)
    figure, layer = by_layer(model, graphs)
    assert 0 <= layer < before.size(1)
    assert torch.equal(looks(model, graphs), before)  # the biases are back
    trained, untrained = (torch.as_tensor(line.get_ydata()) for line in figure.axes[0].lines[:2])
    assert torch.allclose(trained, before.mean(0))
    assert not torch.allclose(untrained, trained)


def test_errors_by_size_and_answer() -> None:
    assert thirds([1, 1, 1, 1, 2, 5]) == [(1, 1), (2, 5)]
    assert thirds([4, 2, 9, 3, 7, 8]) == [(2, 3), (4, 7), (8, 9)]
    questions = [GraphQuestion(("a",) * n, (), "?", answer) for n, answer in ((5, "2"), (6, "7"), (9, "no path"))]
    rows = {row["case"]: row for row in profile("distance", ["2", "9", None], questions, lists=False)}
    assert {"value": 0.3333, "within_one": 0.5, "mean_distance": 1.0}.items() <= rows["distance, all (3)"].items()
    assert rows["distance, answer no path (1)"]["value"] == 0
    assert rows["distance, nodes 5–5 (1)"]["value"] == 1
    told = errors(["0, 4", "none", "1, 2"], ["0, 4", "3", "1, 5"], lists=True)
    assert told == {"value": 0.3333, "found": 0.6, "wrongly_listed": 0.25}
