"""OGB's node data sets, from local folders, with PyTorch's safe loading on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
# what OGB pickles: graphs, and in sets written by its DatasetSaver also numpy's arrays and numbers
_SAFE: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
_SAFE_NUMPY: list[Any] = [np.ndarray, np.dtype, multiarray._reconstruct, multiarray.scalar,
               np.dtypes.Int32DType, np.dtypes.Int64DType, np.dtypes.Float32DType]  # fmt: skip


def ogb_nodes(name: str, root: str | Path, meta: Mapping[str, Any] | str | Path | None = None) -> Data:
    """One of OGB's node data sets as a graph with its split as masks; from local files, nothing is downloaded.

    OGB 1.3.6 loads pickled graphs without naming what may be in them, which PyTorch refuses; here they are named.

    - everything OGB gives (**x**, **edge_index**, …), **y** (N,) where OGB has (N, 1)
    - **train_mask**, **val_mask**, **test_mask** (N,)

    Args:
        name: Such as ``"ogbn-arxiv"``.
        root: The folder given to OGB, which holds ``ogbn_arxiv``; with **meta**, the data set's own folder.
        meta: Of a data set that is not OGB's own: what its ``DatasetSaver`` returned, or the ``meta_dict.pt`` it wrote.

    Raises:
        ImportError: If ogb is missing.
        FileNotFoundError: If the folder is missing or of another version, naming where the data set is published.
        ValueError: If the name is unknown, or there are several kinds of nodes.
    """
    try:
        import ogb.nodeproppred
        import pandas as pd
    except ImportError as error:
        raise ImportError("ogb_nodes: OGB is missing; pip install 'pyg-textgraph[ogb]'") from error
    root = Path(root).expanduser()
    if meta is None:
        master = pd.read_csv(
            Path(ogb.nodeproppred.__file__).with_name("master.csv"), index_col=0, keep_default_na=False
        )
        if name not in master:
            raise ValueError(f"ogb_nodes: 'name' is {name!r}, OGB has {', '.join(master)}")
        about = dict(master[name])
        own = name.replace("-", "_")
        folder = next((x for x in (root / f"{own}_pyg", root / own) if x.is_dir()), root / own)
    else:
        about = dict(meta) if isinstance(meta, Mapping) else torch.load(Path(meta).expanduser(), weights_only=True)
        about["dir_path"] = str(root)
        folder = root
    release = folder / f"RELEASE_v{about['version']}.txt"
    # OGB itself would ask on the terminal whether to download, or to delete another version
    if not release.is_file() or not any((folder / part).is_dir() for part in ("raw", "processed")):
        raise FileNotFoundError(
            f"ogb_nodes: {folder} does not hold {name!r} with {release.name} and 'raw'; unpack {about['url']} there"
        )
    if about["is hetero"] == "True":
        raise ValueError(f"ogb_nodes: {name!r} has several kinds of nodes, expected a set with one")
    # what is allowed already must not be in the list: torch would forbid it when the block ends
    known = torch.serialization.get_safe_globals()
    with torch.serialization.safe_globals([x for x in (*_SAFE, *_SAFE_NUMPY) if x not in known]):
        dataset = ogb.nodeproppred.PygNodePropPredDataset(name, str(root), meta_dict=None if meta is None else about)
        out, split = dataset[0], dataset.get_idx_split()
    out.num_nodes = int(out.num_nodes)
    if out.y.dim() == 2 and out.y.size(1) == 1:
        out.y = out.y.view(-1)
    for part, mask in SPLITS.items():
        out[mask] = torch.zeros(out.num_nodes, dtype=torch.bool)
        out[mask][torch.as_tensor(split[part])] = True
    return out
