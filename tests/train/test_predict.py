"""Predictions of many nodes: their order, and that a killed run ends like an unbroken one."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch import Tensor
from torch_geometric.data import Batch

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.nn import GTLM
from pyg_textgraph.train import NodePredictions, predict_nodes
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import randomize
from tests.sampling.ego_data import verbs
from tests.tiny import tiny_tokenizer

FEATURES = T.Compose([AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)])
NODES = [17, 3, 3, 29, 0, 8, 11, 25, 1, 14, 6]
QUESTION = "Which class?"


def model(seed: int = 1) -> GTLM:
    torch.manual_seed(seed)
    out = GTLM(tiny("llama", vocab_size=400, max_position_embeddings=256), tiny_tokenizer(), LoraConfig(r=2))
    randomize(out, 0.5, seed)
    return out


def changed(data: TextAttributedData, node: int) -> TextAttributedData:
    data.text[node] = "another verb"
    return data


def predict(
    folder: Path, gtlm: GTLM | None = None, nodes: Any = NODES, data: TextAttributedData | None = None, **changes: Any
) -> NodePredictions:
    settings: dict[str, Any] = {"sampler": EgoTextSampler(4), "question": QUESTION, "batch_size": 2, "chunk_size": 4}
    settings |= {"transform": FEATURES, "progress": None} | changes
    return predict_nodes(gtlm or model(), data or verbs(), nodes, folder, **settings)


def dies_after(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """The process is gone after some batches, as far as the files can tell."""
    classify, seen = GTLM.classify, []

    def once(self: GTLM, batch: Batch, names: Any) -> Tensor:
        seen.append(batch)
        if len(seen) > batches:
            raise KeyboardInterrupt
        return classify(self, batch, names)

    monkeypatch.setattr(GTLM, "classify", once)


def same(a: NodePredictions, b: NodePredictions) -> bool:
    return a.node.equal(b.node) and a.scores.equal(b.scores) and a.predicted.equal(b.predicted)


@pytest.mark.parametrize("format", ["npz", "parquet"])
def test_scores_in_the_order_asked_for(tmp_path: Path, format: str) -> None:
    gtlm = model()
    names = [*"abcdefghijklmnopqrstuvwxyz0123456789"]  # many, so that not the same one always wins
    found = predict(tmp_path / "p", gtlm, format=format, class_names=names)
    assert found.node.tolist() == NODES
    assert found.class_names == names
    egos = EgoTextSampler(4).dataset(verbs(), NODES, gtlm.tokenizer, question=QUESTION, transform=FEATURES)
    alone = torch.cat([gtlm.classify(Batch.from_data_list([egos[i]]), names) for i in range(len(NODES))])
    torch.testing.assert_close(found.scores, alone, atol=1e-4, rtol=0)
    assert len(set(alone.argmax(-1).tolist())) > 1
    assert found.predicted.equal(alone.argmax(-1))
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == ["about.json", f"predictions.{format}"]
    assert same(NodePredictions.load(tmp_path / "p"), found)


def test_other_readers_understand_the_files(tmp_path: Path) -> None:
    import numpy as np
    import pandas as pd

    for format in ("npz", "parquet"):
        predict(tmp_path / format, format=format)
    table = pd.read_parquet(tmp_path / "parquet" / "predictions.parquet")
    assert table["node"].tolist() == NODES
    arrays = np.load(tmp_path / "npz" / "predictions.npz")
    assert np.array_equal(np.stack(table["scores"].tolist()), arrays["scores"])
    assert np.array_equal(table["predicted"], arrays["predicted"])


@pytest.mark.parametrize("format", ["npz", "parquet"])
@pytest.mark.parametrize("batches", [0, 1, 2, 3, 5])
def test_a_killed_run_ends_like_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, format: str
) -> None:
    whole = predict(tmp_path / "whole", format=format)
    with monkeypatch.context() as patch:
        dies_after(patch, batches)
        with pytest.raises(KeyboardInterrupt):
            predict(tmp_path / "broken", format=format)
    files = sorted(p.name for p in (tmp_path / "broken").glob("chunk*"))
    assert files == [f"chunk-{i:06}.{format}" for i in range(batches // 2)]  # two batches fill a chunk
    with monkeypatch.context() as patch:
        dies_after(patch, 6 - 2 * (batches // 2))  # and no batch more
        assert same(predict(tmp_path / "broken", format=format), whole)
    with monkeypatch.context() as patch:
        dies_after(patch, 0)  # a finished run is read
        assert same(predict(tmp_path / "broken", format=format), whole)


def test_a_function_as_transform_is_the_same_in_the_next_process(tmp_path: Path) -> None:
    def features(tag: str) -> Any:
        return T.Compose([lambda data: FEATURES(data)])

    assert same(predict(tmp_path, transform=features("a")), predict(tmp_path, transform=features("b")))


def test_a_transform_that_prints_alike_is_another(tmp_path: Path) -> None:
    def features(directed: bool) -> Any:
        return lambda data: T.Compose([FEATURES, AddSPD(8, directed=directed)])(data)

    predict(tmp_path, transform=features(True))
    with pytest.raises(ValueError, match="other 'first graph'"):
        predict(tmp_path, transform=features(False))


@pytest.mark.parametrize("moment", ["write", "rename", "merge"])
def test_killed_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    whole = predict(tmp_path / "whole")
    replace, fsync = Path.replace, os.fsync

    def die_in_replace(self: Path, target: Path) -> Path:
        if (moment == "rename" and "chunk-000001" in self.name) or (moment == "merge" and "predictions" in self.name):
            raise KeyboardInterrupt
        return replace(self, target)

    def die_in_fsync(number: int) -> None:
        if len(list((tmp_path / "broken").glob("chunk-*.npz"))) == 1:
            raise KeyboardInterrupt
        fsync(number)

    with monkeypatch.context() as patch:
        if moment == "write":
            patch.setattr(os, "fsync", die_in_fsync)
        else:
            patch.setattr(Path, "replace", die_in_replace)
        with pytest.raises(KeyboardInterrupt):
            predict(tmp_path / "broken")
    (tmp_path / "broken" / ".part-1-chunk-000002.npz").write_bytes(b"half a file")  # as a killed process leaves it
    assert same(predict(tmp_path / "broken"), whole)
    assert not list((tmp_path / "broken").glob(".part-*"))


def slowly(folder: Path) -> None:
    torch.set_num_threads(1)
    classify = GTLM.classify

    def slow(self: GTLM, batch: Batch, names: Any) -> Tensor:
        time.sleep(0.2)
        return classify(self, batch, names)

    GTLM.classify = slow  # type: ignore[method-assign,assignment]
    predict(folder)


def test_a_process_that_is_really_killed(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=slowly, args=(tmp_path / "p",))
    child.start()
    deadline = time.monotonic() + 120
    while not list((tmp_path / "p").glob("chunk*.npz")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert not (tmp_path / "p" / "predictions.npz").exists()
    assert same(predict(tmp_path / "p"), predict(tmp_path / "whole"))


def test_workers_change_nothing(tmp_path: Path) -> None:
    assert same(predict(tmp_path / "a"), predict(tmp_path / "b", num_workers=2))


def test_a_mask_and_no_nodes(tmp_path: Path) -> None:
    mask = torch.arange(30) >= 27
    assert predict(tmp_path / "mask", nodes=mask).node.tolist() == [27, 28, 29]
    for format in ("npz", "parquet"):
        none = predict(tmp_path / format, nodes=torch.empty(0, dtype=torch.long), format=format)
        assert none.scores.shape == (0, 3)
        assert none.node.dtype == torch.long


def test_another_run_s_folder_is_refused(tmp_path: Path) -> None:
    predict(tmp_path)
    with pytest.raises(ValueError, match="other 'model'"):
        predict(tmp_path, model(2))
    frozen = model(2).requires_grad_(False)
    with pytest.raises(ValueError, match="other 'model'"):
        predict(tmp_path, frozen)
    with pytest.raises(ValueError, match="other 'batch_size', 'nodes';"):
        predict(tmp_path, nodes=[1, 2], batch_size=3)
    with pytest.raises(ValueError, match="other 'sampler'"):
        predict(tmp_path, sampler=EgoTextSampler(5))
    with pytest.raises(ValueError, match="other 'texts and edges'"):
        predict(tmp_path, data=changed(verbs(), 5))  # a node that is not asked for may be a neighbour
    with pytest.raises(ValueError, match="other 'options'"):
        predict(tmp_path, max_target_tokens=3)
    with pytest.raises(ValueError, match="holds predictions already"):
        predict(tmp_path, resume=False)


def test_bad_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'chunk_size' is 0"):
        predict(tmp_path, chunk_size=0)
    with pytest.raises(ValueError, match="'format' is 'csv', expected 'npz' or 'parquet'"):
        predict(tmp_path, format="csv")
    data = verbs()
    del data.class_names
    with pytest.raises(ValueError, match="'class_names' is missing"):
        predict_nodes(model(), data, NODES, tmp_path, sampler=EgoTextSampler(4), question=QUESTION)
    with pytest.raises(FileNotFoundError, match="no finished predictions"):
        NodePredictions.load(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'pyg-textgraph\[parquet\]'"):
        predict(tmp_path, format="parquet")
