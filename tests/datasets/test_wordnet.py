import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import WordNet, WordNetVerbs
from pyg_textgraph.datasets._synsets import POINTERS, Synsets

CUT = Path(__file__).parents[1] / "data" / "wordnet"  # 35 synsets and the pointers between them
INSTALLED = Path("/usr/share/wordnet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CUT, tmp_path / "wordnet"))


def edges(data: TextAttributedData) -> list[tuple[int, int, str]]:
    """The edges as (id, id, name), whatever the nodes' order."""
    return sorted(zip(*data.synset[data.edge_index].tolist(), data.text_edges, strict=True))


def test_verbs_come_with_the_package() -> None:
    start = time.perf_counter()
    dataset = WordNetVerbs()
    data = dataset[0]
    assert time.perf_counter() - start < 0.5
    assert isinstance(data, TextAttributedData)
    assert data.validate()
    assert (len(dataset), data.num_nodes, data.num_edges, dataset.num_classes) == (1, 13767, 30407, 15)
    assert data.class_names == dataset.class_names
    assert data.class_names[:3] + data.class_names[9:10] == ["body", "change", "cognition", "motion"]
    assert data.text[0].startswith(
        "breathe, take a breath, respire, suspire: draw air into, and expel out of, the lungs;"
    )
    assert data.class_names[int(data.y[0])] == "body"
    assert data.y.bincount().max() / 13767 == pytest.approx(0.173, abs=5e-4)
    assert not any("verb." in text for text in data.text)


def test_relations_have_names() -> None:
    data = WordNetVerbs()[0]
    assert data.text_edges == [WordNetVerbs.relation_names[i] for i in data.edge_type.tolist()]
    up, down = (data.edge_type == WordNet.relation_names.index(name) for name in ("hypernym", "hyponym"))
    assert set(zip(*data.edge_index[:, up].tolist(), strict=True)) == set(
        zip(*data.edge_index[:, down].flip(0).tolist(), strict=True)
    )
    assert len(set(POINTERS.values())) == len(POINTERS) == 26


def test_the_split_is_fixed() -> None:
    data = WordNetVerbs()[0]
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert masks.sum(0).eq(1).all()
    assert masks.sum(1).tolist() == [8260, 2753, 2754]
    assert data.train_mask.nonzero().view(-1)[:8].tolist() == [1, 2, 4, 5, 6, 8, 10, 12]
    assert data.test_mask.nonzero().view(-1)[:8].tolist() == [0, 3, 9, 19, 20, 22, 24, 29]


def test_transform_runs_at_every_access() -> None:
    dataset = WordNetVerbs(transform=T.ToUndirected())
    assert dataset[0].is_undirected()
    assert WordNetVerbs()[0].is_directed()


def test_a_folder_with_the_files() -> None:
    dataset = WordNet(CUT)
    data = dataset[0]
    assert data.validate()
    assert data.num_nodes == 35
    assert len(dataset.class_names) == 45
    assert (data.synset // 10**8).tolist() == sorted((data.synset // 10**8).tolist())
    solar = data.text.index(next(text for text in data.text if text.startswith("solar: ")))
    assert data.class_names[int(data.y[solar])] == "adj pert"
    assert any(text.startswith("afloat: borne on the water") for text in data.text)  # the file has "afloat(p)"
    sun = 109450163
    assert (int(data.synset[solar]), sun, "pertainym") in edges(data)
    assert (sun, 109444100, "instance hypernym") in edges(data)


def test_verbs_of_the_folder_are_those_of_the_package() -> None:
    cut, packaged = Synsets.from_folder(CUT).verbs(), WordNetVerbs()[0]
    place = np.searchsorted(packaged.synset.numpy(), cut.synset)
    assert packaged.synset[place].tolist() == cut.synset.tolist()
    assert [packaged.text[i] for i in place] == cut.text
    assert (packaged.y[place].numpy() + 29 == cut.lexicographer).all()
    inside = packaged.clone()
    del inside.text, inside.text_edges
    inside = inside.subgraph(torch.from_numpy(place))
    assert sorted(zip(*inside.edge_index.tolist(), inside.edge_type.tolist(), strict=True)) == sorted(
        zip(*cut.edge_index.tolist(), cut.edge_type.tolist(), strict=True)
    )


def test_saved_synsets_are_the_same(tmp_path: Path) -> None:
    before = Synsets.from_folder(CUT)
    before.save(tmp_path / "cut.npz")
    after = Synsets.load(tmp_path / "cut.npz")
    assert before.text == after.text
    for key in ("synset", "lexicographer", "edge_index", "edge_type"):
        assert np.array_equal(getattr(before, key), getattr(after, key))


@pytest.mark.parametrize("name", ["data.noun", "data.verb", "data.adj", "data.adv"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing; 'root' must hold data.noun, data.verb"):
        WordNet(folder)


@pytest.mark.parametrize(
    "line", ["no synset", "00001740 99 v 01 breathe 0 000 | air", "00001740 29 v 01 run 0 001 ? 1 v 0 |"]
)
def test_a_malformed_line_is_named(folder: Path, line: str) -> None:
    (folder / "data.verb").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"data\.verb line 1 is not a synset of WordNet 3\.0"):
        WordNet(folder)


def test_a_dangling_pointer_is_named(folder: Path) -> None:
    (folder / "data.verb").write_text("00001740 29 v 01 breathe 0 001 @ 00000001 v 0000 | draw air\n")
    (folder / "data.noun").write_text("")
    with pytest.raises(ValueError, match=r"data\.verb line 1 points at synset 200000001"):
        WordNet(folder)


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED.exists(), reason="needs Debian's wordnet-base")
def test_the_whole_of_wordnet() -> None:
    data = WordNet(INSTALLED)[0]
    verbs, packaged = Synsets.from_folder(INSTALLED).verbs(), WordNetVerbs()[0]
    assert data.num_nodes == 117659
    assert verbs.text == packaged.text
    assert np.array_equal(verbs.synset, packaged.synset)
    assert np.array_equal(verbs.edge_index, packaged.edge_index)
    assert np.array_equal(verbs.edge_type, packaged.edge_type)
    assert np.array_equal(verbs.lexicographer - 29, packaged.y)
