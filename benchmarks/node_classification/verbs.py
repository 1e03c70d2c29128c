"""WordNet verbs as a data set in OGB's format, with texts in the files that ogbn-arxiv has."""

from __future__ import annotations

import contextlib
import gzip
import io
import tempfile
from pathlib import Path

import numpy as np
from ogb.io import DatasetSaver
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from pyg_textgraph.datasets import WordNetVerbs

NAME = "ogbn-verbs"


def write_verbs(folder: Path, num_nodes: int | None = None, channels: int = 128) -> Path:
    """Writes the data set with OGB's own ``DatasetSaver``, if it is not there.

    The given features are TF-IDF of lemmas and gloss, reduced to **channels** dimensions by a singular value
    decomposition: bags of words, as ogbn-arxiv's are.

    Args:
        folder: Where it goes.
        num_nodes: How many verbs, all by default.
        channels: Of the features.

    Returns:
        The data set's own folder; ``meta_dict.pt`` is beside it.
    """
    own = folder / "submission_ogbn_verbs" / "verbs"
    if (own.parent / "meta_dict.pt").is_file():
        return own
    data = WordNetVerbs()[0]
    n = num_nodes or int(data.num_nodes)
    texts = data.text[:n]
    bags = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    features = TruncatedSVD(channels, random_state=0).fit_transform(bags).astype(np.float32)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-8)
    edges = data.edge_index[:, (data.edge_index < n).all(0)].numpy()
    masks = {"train": data.train_mask, "valid": data.val_mask, "test": data.test_mask}
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as mapping:
        saver = DatasetSaver(NAME, is_hetero=False, version=1, root=str(folder / "submission"))
        saver.save_graph_list([{"num_nodes": n, "edge_index": edges, "node_feat": features}])
        saver.save_target_labels(data.y[:n, None].numpy())
        saver.save_split({part: mask[:n].nonzero().view(-1).numpy() for part, mask in masks.items()}, "random")
        _write_texts(Path(mapping), data.synset[:n].tolist(), texts, data.class_names)
        saver.copy_mapping_dir(mapping)
        saver.save_task_info("multiclass classification", "acc", len(data.class_names))
        saver.get_meta_dict()
    return own


def _write_texts(folder: Path, synsets: list[int], texts: list[str], class_names: list[str]) -> None:
    rows = [text.split(": ", 1) for text in texts]
    files = {
        "nodeidx2paperid.csv.gz": ["node idx,paper id", *(f"{i},{synset}" for i, synset in enumerate(synsets))],
        "labelidx2arxivcategeory.csv.gz": [
            "label idx,arxiv category",
            *(f"{i},{x}" for i, x in enumerate(class_names)),
        ],
        "titleabs.tsv.gz": ["\t".join((str(synset), *row)) for synset, row in zip(synsets, rows, strict=True)],
    }
    for name, lines in files.items():
        with gzip.open(folder / name, "wt", encoding="utf-8", newline="") as file:
            file.writelines(f"{line}\n" for line in lines)
    (folder / "README.md").write_text(
        "# WordNet verbs\n\nPapers are synsets of WordNet 3.0, titles their lemmas and abstracts their glosses, arXiv "
        "categories the lexicographer files. The files are laid out as those of ogbn-arxiv.\n"
    )
