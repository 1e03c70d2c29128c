"""OGB's way from data to score: a data set written by OGB's DatasetSaver, loaded, given its texts, and evaluated."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig
from torch_geometric.data.data import DataEdgeAttr

from benchmarks.node_classification import gtlm, run
from benchmarks.node_classification.models import GNNRow, score_gnn
from benchmarks.node_classification.verbs import NAME, write_verbs
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import WordNetVerbs, ogb_nodes
from pyg_textgraph.nn import GTLM
from pyg_textgraph.train.gnn import GNNName
from tests.nn.families import tiny
from tests.tiny import tiny_tokenizer

NODES = 1200  # two classes


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ogb")
    write_verbs(root, NODES, channels=8)
    return root


@pytest.fixture(scope="module")
def data(root: Path) -> TextAttributedData:
    return run.load(NAME, root)


def test_what_was_written_is_what_is_read(data: TextAttributedData) -> None:
    verbs = WordNetVerbs()[0]
    inside = (verbs.edge_index < NODES).all(0)
    assert data.text == verbs.text[:NODES]
    assert data.class_names == verbs.class_names
    assert data.y.equal(verbs.y[:NODES])
    assert data.edge_index.equal(verbs.edge_index[:, inside])
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert data[mask].equal(verbs[mask][:NODES])
    assert data.x.shape == (NODES, 8)
    torch.testing.assert_close(data.x.norm(dim=-1), torch.ones(NODES))
    assert data.validate()


def test_safe_loading_stays_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files without our help are refused, and nothing is allowed afterwards that was not before."""
    from ogb.nodeproppred import PygNodePropPredDataset

    own = root / "submission_ogbn_verbs" / "verbs"
    meta = torch.load(own.parent / "meta_dict.pt", weights_only=True) | {"dir_path": str(own)}
    allowed = set(torch.serialization.get_safe_globals())
    assert DataEdgeAttr in allowed  # importing our containers allows it, and it has to stay
    assert ogb_nodes(NAME, own, meta).num_nodes == NODES
    assert set(torch.serialization.get_safe_globals()) == allowed
    loaded, load = {}, torch.load

    def watch(file: object, *args: object, **kwargs: object) -> object:
        loaded[Path(str(file)).name] = kwargs.get("weights_only", True)
        return load(file, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(torch, "load", watch)
    ogb_nodes(NAME, own, meta)
    assert loaded["geometric_data_processed.pt"]
    assert loaded["split_dict.pt"]
    with pytest.raises(Exception, match="Weights only load failed"):
        PygNodePropPredDataset(NAME, meta_dict=meta).get_idx_split()


def test_missing_folders(tmp_path: Path, root: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"does not hold 'ogbn-arxiv' .*RELEASE_v1.txt.*snap.stanford.edu/.*arxiv.zip"
    ):
        ogb_nodes("ogbn-arxiv", tmp_path)
    with pytest.raises(ValueError, match="'name' is 'ogbn-verbs', OGB has ogbn-proteins, ogbn-products, ogbn-arxiv"):
        ogb_nodes(NAME, tmp_path)
    # another version: OGB itself would ask on the terminal whether to delete it
    own = root / "submission_ogbn_verbs" / "verbs"
    shutil.copytree(own, tmp_path / "verbs")
    (tmp_path / "verbs" / "RELEASE_v1.txt").rename(tmp_path / "verbs" / "RELEASE_v0.txt")
    with pytest.raises(FileNotFoundError, match=r"does not hold 'ogbn-verbs' with RELEASE_v1.txt"):
        ogb_nodes(NAME, tmp_path / "verbs", own.parent / "meta_dict.pt")
    assert (tmp_path / "verbs" / "raw").is_dir()


def test_the_layout_of_a_real_ogb_set(tmp_path: Path) -> None:
    """ogbn-arxiv is published as gzipped tables, not as the saver's arrays."""
    folder = tmp_path / "ogbn_arxiv"
    tables = {
        "raw/edge": [[0, 1], [1, 2]],
        "raw/node-feat": [[0.5, 1.0], [0.25, 0.0], [1.0, 2.0]],
        "raw/node_year": [[2015], [2016], [2018]],
        "raw/node-label": [[4], [0], [39]],
        "raw/num-node-list": [[3]],
        "raw/num-edge-list": [[2]],
        "split/time/train": [[0]],
        "split/time/valid": [[1]],
        "split/time/test": [[2]],
    }
    for name, rows in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savetxt(path, np.array(rows), "%g", ",")
    (folder / "RELEASE_v1.txt").touch()
    for _ in range(2):  # processed, then read back
        data = ogb_nodes("ogbn-arxiv", tmp_path)
        assert data.y.tolist() == [4, 0, 39]
        assert data.edge_index.tolist() == [[0, 1], [1, 2]]
        assert data.node_year.tolist() == [[2015], [2016], [2018]]
        assert torch.stack([data.train_mask, data.val_mask, data.test_mask]).equal(torch.eye(3).bool())


def test_limits(data: TextAttributedData) -> None:
    some, all_of_them = run.Limits(train=20, test=5).nodes(data), run.Limits().nodes(data)
    assert [len(some[part]) for part in ("train", "valid", "test")] == [20, int(data.val_mask.sum()), 5]
    for part, mask in (("train", data.train_mask), ("valid", data.val_mask), ("test", data.test_mask)):
        assert mask[some[part]].all()
        assert all_of_them[part].sort().values.equal(mask.nonzero().view(-1))
    assert str(run.Limits(train=20, test=5)) == "train=20 test=5"


@pytest.mark.parametrize("model", ["mlp", "gcn", "sage", "gat"])
def test_test_labels_choose_nothing(data: TextAttributedData, model: GNNName) -> None:
    config = GNNRow(model=model, hidden=8, heads=2, norm="BatchNorm", epochs=6, patience=6)
    nodes, predicted = run.Limits().nodes(data), []

    def score(found: torch.Tensor, true: torch.Tensor) -> float:
        predicted.append(found)
        return float((found == true).float().mean())

    spoilt = data.clone()
    spoilt.y = data.y.clone()
    spoilt.y[nodes["test"]] = 3
    first, second = (score_gnn(config, graph, nodes, 15, 0, score) for graph in (data, spoilt))
    assert first.valid == second.valid
    assert second.test == 0
    assert [len(found) for found in predicted] == [len(nodes["valid"]), len(nodes["test"])] * 2
    assert predicted[1].equal(predicted[3])


def test_a_table_of_seeds(data: TextAttributedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "small.toml"
    config.write_text('title = "small GCN"\nmodel = "gcn"\nhidden = 16\nepochs = 30\nnorm = "BatchNorm"\n')
    arguments = ([str(config)], data, NAME, run.Limits(), 3, tmp_path / "runs")
    rows = run.run(*arguments)
    test, valid = rows
    assert (test["case"], test["metric"]) == ("ogbn-verbs full split small GCN", "test accuracy")
    assert test["seeds"] == 3
    assert len(test["each"]) == 3
    assert test["value"] == pytest.approx(np.mean(test["each"]), abs=1e-4)
    assert test["std"] == pytest.approx(np.std(test["each"], ddof=1), abs=2e-4)
    assert test["parameters"] == 8 * 16 + 16 + 2 * 16 + 16 * 15 + 15  # two layers and a batch norm
    majority = data.y[data.val_mask].bincount().max() / data.val_mask.sum()
    assert valid["value"] > float(majority)
    # what is done is read, not done again
    monkeypatch.setattr(run, "score_gnn", None)
    assert run.run(*arguments) == rows


def test_gtlm_row_and_its_resumption(data: TextAttributedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: gtlm.GTLMConfig) -> GTLM:
        base = tiny("llama", vocab_size=400, max_position_embeddings=256)
        return GTLM(base, tiny_tokenizer(), LoraConfig(r=config.rank, lora_alpha=2 * config.rank))

    monkeypatch.setattr(gtlm, "load", load)
    config = tmp_path / "tiny.toml"
    config.write_text(
        'title = "tiny GTLM"\nquestion = "Which class?"\nnum_neighbors = 3\nrank = 2\nepochs = 1\nvalidations = 2\n'
        "validation_nodes = 4\neval_batch_size = 4\nmax_target_tokens = 12\nmax_neighbor_tokens = 4\n"
    )
    limits = run.Limits(8, 6, 10)
    whole = run.run([str(config)], data, NAME, limits, 1, tmp_path / "whole")
    assert whole[0]["case"] == "ogbn-verbs train=8 valid=6 test=10 tiny GTLM"
    assert 0 < whole[0]["trained"] < whole[0]["parameters"]
    predict, calls = gtlm.predict_nodes, []

    def dying(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == 2:
            raise MemoryError
        return predict(*args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(gtlm, "predict_nodes", dying)
        with pytest.raises(MemoryError):
            run.run([str(config)], data, NAME, limits, 1, tmp_path / "broken")
    again = run.run([str(config)], data, NAME, limits, 1, tmp_path / "broken")
    assert [row["each"] for row in again] == [row["each"] for row in whole]


@pytest.mark.parametrize("path", sorted((run.HERE / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_configs_are_read(path: Path) -> None:
    title, config = run.read_config(path.stem)
    assert title
    assert isinstance(config, GNNRow | gtlm.GTLMConfig)


def test_command(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "write_results", lambda question, rows, argv, label: json.dumps([question, rows]))
    monkeypatch.setattr(sys, "argv", ["run.py"])
    arguments = ["--root", str(root), "--folder", str(tmp_path), "--configs", "mlp", "gcn"]
    run.main([*arguments, "--smoke"])
    assert "train=16 valid=8 test=8 GCN" in capsys.readouterr().out
    config = tmp_path / "small.toml"
    config.write_text('title = "small"\nmodel = "mlp"\nhidden = 8\nepochs = 2\n')
    run.main(["--root", str(root), "--folder", str(tmp_path), "--configs", str(config), "--seeds", "2", "--label", "x"])
    question, rows = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert question == "node_classification"
    assert [row["seeds"] for row in rows] == [2, 2]
