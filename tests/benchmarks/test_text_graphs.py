"""The table of text graphs: every row runs on the same nodes, stops and goes on, and ends in result files."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import tables
from benchmarks.node_jobs import Job, Method, Settings, some_nodes
from benchmarks.text_graphs import run
from benchmarks.text_graphs.rows import GNN_SEEDS, LANGUAGE_MODELS, METHODS, SETTINGS, load_graph
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.metrics import mcnemar


def graph_folder(folder: Path, size: int = 30) -> Path:
    """A ring of papers in two areas, in the files of DBLP."""
    folder.mkdir()
    nodes = [{"id": i, "text": f"paper {i} on {'data' if i < size // 2 else 'mind'}", "label": int(i >= size // 2)}
             for i in range(size)]  # fmt: skip
    (folder / "nodes.jsonl").write_text("\n".join(json.dumps(node) for node in nodes))
    (folder / "edges.csv").write_text("\n".join(f"{i},{(i + 1) % size}" for i in range(size)))
    (folder / "classes.json").write_text('["Database", "Artificial Intelligence"]')
    return folder


def test_all_rows_from_beginning_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dblp = graph_folder(tmp_path / "dblp")
    arguments = ["--smoke", "--dblp", str(dblp), "--folder", str(tmp_path / "runs"), "--only"]
    arguments += [f"dblp {method}" for method in METHODS]
    run.main(arguments)
    first = capsys.readouterr().out
    assert len(first.splitlines()) == 1 + len(METHODS)
    data = load_graph("dblp", dblp)
    assert data.is_undirected()
    test = some_nodes(data.test_mask, 6)
    for method in METHODS:
        row = json.loads((tmp_path / "runs" / f"dblp_{method.replace(' ', '_')}" / "row.json").read_text())
        assert row["case"] == method
        assert row["test"] == test.numel()
        if method in ("GCN", "GraphSAGE", "GAT"):
            assert len(row["each"]) == row["seeds"] == GNN_SEEDS
        else:
            assert row["value"] == pytest.approx(sum(row["right"]) / test.numel(), abs=1e-4)
        if method in LANGUAGE_MODELS:
            assert (row["trained"] > 0) == (method != "zero-shot LM")
    # what is finished is read back
    (tmp_path / "runs" / "dblp_GTLM" / "row.json").write_text(json.dumps(row | {"case": "GTLM", "value": 0.123}))
    run.main([*arguments[:5], "--resume", "--only", "dblp GTLM"])
    assert "0.123" in capsys.readouterr().out


def test_names(capsys: pytest.CaptureFixture[str]) -> None:
    run.main(["--plan"])
    assert capsys.readouterr().out.splitlines() == [f"verbs {method}" for method in METHODS]
    run.main(["--plan", "--dblp", "somewhere", "--only", "dblp GTLM", "verbs GAT"])
    assert capsys.readouterr().out.splitlines() == ["dblp GTLM", "verbs GAT"]
    with pytest.raises(SystemExit, match="2"):
        run.main(["--only", "verbs GTML"])
    assert "there is no job 'verbs GTML'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="need --dblp FOLDER"):
        run.main(["--smoke", "--only", "dblp majority"])
    labels = {run.label(name) for name in run.names()}
    assert len(labels) == len(run.names())
    assert not any(label.endswith(f"-{graph}") for label in labels for graph in SETTINGS)


def test_tables_are_made_of_the_newest_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(name: str, **values: object) -> None:
        row = {"case": name.split(" ", 1)[1], "metric": "accuracy", "value": 0.5, "macro_f1": 0.4, "test": 6} | values
        run.write_results("text_graphs", [row], ["run.py"], run.label(name), tmp_path)

    record("verbs GTLM", right=[1, 1, 1, 1, 1, 1], settings={})
    record("verbs majority", right=[0, 0, 0, 0, 0, 1])
    record("verbs GCN", std=0.01, seeds=5)
    [path] = run.collect(tmp_path)
    assert path.stem.endswith("-verbs")
    majority, gcn, gtlm = json.loads(path.read_text())["rows"]
    expected = mcnemar(torch.ones(6).bool(), torch.tensor([0, 0, 0, 0, 0, 1]).bool())
    assert majority["mcnemar_p"] == pytest.approx(expected, rel=0.05)
    assert gcn == {"case": "GCN test=6", "metric": "accuracy", "value": 0.5, "macro_f1": 0.4, "std": 0.01, "seeds": 5}
    assert "mcnemar_p" not in gtlm
    assert "settings" not in gtlm
    monkeypatch.setattr(tables, "newest", lambda *_: json.loads(path.read_text()))
    page = tmp_path / "text_graphs" / "README.md"
    page.parent.mkdir()
    page.write_text("<!-- results: verbs -->\n<!-- /results -->\n")
    assert "| GCN test=6 | 0.5 | 0.01 | 5 | 0.4 |" in tables.filled(page)


class TestJobs:
    @pytest.fixture
    def data(self, tmp_path: Path) -> TextAttributedData:
        return load_graph("dblp", graph_folder(tmp_path / "dblp")).update({"x": torch.eye(30)})

    def job(self, method: Method, data: TextAttributedData, tmp_path: Path) -> Job:
        settings = Settings("Which?", 6, 3, 3, num_neighbors=2, rank=2, validations=1)
        return Job(method, method, data, settings, tmp_path / "runs", run.tiny_language_model)

    def test_what_each_method_reads(self, data: TextAttributedData, tmp_path: Path) -> None:
        graphs: dict[str, TextAttributedData] = {}
        for method in LANGUAGE_MODELS.values():
            graphs[method] = self.job(method, data, tmp_path).train[0]
        text = {method: self.decoded(graph) for method, graph in graphs.items()}
        answer = text["text only"].split("A: ")[1]
        assert text["text only"] == text["zero-shot"]
        assert text["text only"].count("paper") == 1
        assert text["gtlm"].count("paper") == 3
        assert text["serialized graph"].count("paper") == 3
        assert text["serialized graph"].count("(") == 2  # each link once
        assert text["serialized graph"].endswith(answer)
        assert graphs["serialized graph"].num_nodes == 1
        assert graphs["graph tokens"].x.argmax(-1).tolist() == graphs["graph tokens"].n_id.tolist()
        assert "spd" in graphs["gtlm"]
        assert "spd" not in graphs["graph tokens"]

    def decoded(self, graph: TextAttributedData) -> str:
        return run.ByT5Tokenizer().decode(graph.input_ids)

    def test_labels_of_test_nodes_change_no_answer(self, data: TextAttributedData, tmp_path: Path) -> None:
        job = self.job("graph tokens", data, tmp_path)
        before = job.scores(job.test)
        job.data.y[job.test] = 1 - job.data.y[job.test]
        assert torch.equal(job.scores(job.test), before)

    def test_zero_shot_subtracts_the_mean_over_validation_nodes(self, data: TextAttributedData, tmp_path: Path) -> None:
        job = self.job("zero-shot", data, tmp_path)
        scores = job.scores(job.test) - job.scores(job.validation).mean(0)
        told = job.run(resume=False)
        assert told["predicted"] == scores.argmax(-1).tolist()
        assert told["trained"] == 0
        assert 0 <= told["raw_accuracy"] <= 1

    def test_parts_of_the_split_are_disjoint_and_fixed(self, data: TextAttributedData, tmp_path: Path) -> None:
        job, again = (self.job("text only", data, tmp_path) for _ in range(2))
        parts = [job.train.nodes, job.validation, job.test]
        assert torch.cat(parts).unique().numel() == sum(part.numel() for part in parts)
        assert torch.equal(job.test, again.test)
