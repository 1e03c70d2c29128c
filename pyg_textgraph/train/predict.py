"""Class scores of very many nodes, written as they come; a killed run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch_geometric.loader import DataLoader
from tqdm import tqdm

from pyg_textgraph.atomic import saving_file
from pyg_textgraph.data.text_attributed_data import with_edge_index
from pyg_textgraph.train.checkpoint import trained_parameters

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from pyg_textgraph.data import TokenStore
    from pyg_textgraph.nn import TextGraphLM
    from pyg_textgraph.transforms import EgoTextSampler

Format = Literal["npz", "parquet"]
_ABOUT = "about.json"


@dataclass(frozen=True, eq=False)
class NodePredictions:
    """What :func:`predict_nodes` found, in the order of the nodes asked for.

    Shapes: **node** (n,) int64; **scores** (n, C) float32; **predicted** (n,) int64 index into **class_names**
    """

    node: Tensor
    scores: Tensor
    predicted: Tensor
    class_names: list[str]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Reads a finished run's file.

        Raises:
            FileNotFoundError: If the run is not finished, or there is none.
        """
        folder = Path(folder)
        found = next((path for f in ("npz", "parquet") if (path := folder / f"predictions.{f}").is_file()), None)
        if found is None:
            raise FileNotFoundError(f"NodePredictions: {folder} holds no finished predictions (.npz or .parquet)")
        table = _read(found)
        names = json.loads((folder / _ABOUT).read_text())["class_names"]
        node, scores, predicted = (torch.from_numpy(table[key]) for key in ("node", "scores", "predicted"))
        return cls(node, scores, predicted, names)


def predict_nodes(
    model: TextGraphLM,
    data: Data,
    nodes: Tensor | Sequence[int],
    folder: str | Path,
    *,
    sampler: EgoTextSampler,
    question: str,
    class_names: Sequence[str] | None = None,
    batch_size: int = 16,
    chunk_size: int = 1024,
    num_workers: int = 0,
    format: Format = "npz",
    resume: bool = True,
    progress: str | None = "predicting",
    **options: Any,
) -> NodePredictions:
    """Scores the class names for many nodes of one big graph.

    Egos are sampled, tokenized, scored and written chunk by chunk. A chunk's file appears whole or not at all, so a
    run that was killed at any moment goes on after its last whole chunk and ends with the same numbers. At the end
    the chunks become one file, ``predictions.npz`` or ``predictions.parquet``, with columns ``node``, ``scores`` and
    ``predicted``.

    Args:
        model: Scores by :meth:`TextGraphLM.classify <pyg_textgraph.nn.TextGraphLM.classify>`.
        data: The big graph with its texts.
        nodes: Indices, in any order and with repeats, or a mask.
        folder: Where the files go.
        sampler: Samples the egos.
        question: What is asked of every node.
        class_names: The possible answers, ``data.class_names`` by default.
        batch_size: Egos at a time.
        chunk_size: Nodes per file, and so the most that is computed again after a crash.
        num_workers: Processes that sample and tokenize.
        format: Of the files; ``"parquet"`` needs pyarrow.
        resume: Whether to go on from what is in the folder; without it, the folder must hold no predictions.
        progress: Name of the progress bar; None for none.
        **options: Of :meth:`EgoTextSampler.dataset <pyg_textgraph.transforms.EgoTextSampler.dataset>`: ``transform``,
            ``max_target_tokens``, ``store``, …

    Shapes: **nodes** (n,) or a mask (N,)

    Raises:
        ValueError: If the folder holds the predictions of another run, naming what differs, or an argument is wrong.
        ImportError: If pyarrow is missing.
    """
    for name, value in (("batch_size", batch_size), ("chunk_size", chunk_size)):
        if value < 1:
            raise ValueError(f"predict_nodes: '{name}' is {value}, expected at least 1")
    if format not in ("npz", "parquet"):
        raise ValueError(f"predict_nodes: 'format' is {format!r}, expected 'npz' or 'parquet'")
    if format == "parquet":
        _pyarrow()
    egos = sampler.dataset(data, nodes, model.tokenizer, question=question, **options)
    names = list(class_names) if class_names is not None else list(data.get("class_names") or ())
    if not names:
        raise ValueError(
            "predict_nodes: 'class_names' is missing and the graph has none, expected the possible answers"
        )
    folder = Path(folder)
    about = {
        "class_names": names,
        "question": question,
        "sampler": f"{sampler}, epoch={sampler.epoch}",
        "options": {key: _told(value) for key, value in sorted(options.items()) if key not in ("store", "transform")},
        "transform": _told(options.get("transform")),
        "first graph": _digest(_tensors(egos[0])) if len(egos) else "",
        "nodes": _digest([egos.nodes]),
        "texts and edges": _digest(chain([with_edge_index(data).edge_index], _tokens(egos.to_graphs.store))),
        "model": _fingerprint(model),
        "batch_size": batch_size,
        "chunk_size": chunk_size,
        "format": format,
    }
    _claim(folder, json.loads(json.dumps(about)), resume)
    done = folder / f"predictions.{format}"
    if done.is_file():
        return NodePredictions.load(folder)

    chunks = [range(start, min(start + chunk_size, len(egos))) for start in range(0, len(egos), chunk_size)]
    places = [folder / f"chunk-{number:06}.{format}" for number in range(len(chunks))]
    for left in folder.glob(".part-*"):
        left.unlink()
    open_chunks = [(chunk, place) for chunk, place in zip(chunks, places, strict=True) if not place.is_file()]
    batches = [list(chunk[i : i + batch_size]) for chunk, _ in open_chunks for i in range(0, len(chunk), batch_size)]
    # one loader for all chunks: workers start once and read ahead across a chunk's end
    loader = iter(DataLoader(egos, batch_sampler=batches, num_workers=num_workers)) if batches else iter(())
    with tqdm(total=len(egos), desc=progress, disable=progress is None, unit="node") as bar:
        bar.update(len(egos) - sum(map(len, batches)))
        for chunk, place in open_chunks:
            scores = torch.cat(list(_scores(model, loader, -(-len(chunk) // batch_size), names, bar)))
            _write(place, [_columns(egos.nodes[chunk.start : chunk.stop], scores)], len(names))
    _write(done, (_read(place) for place in places), len(names))
    for place in places:
        place.unlink()
    return NodePredictions.load(folder)


def _scores(model: TextGraphLM, loader: Iterator[Any], batches: int, names: list[str], bar: Any) -> Iterator[Tensor]:
    for _ in range(batches):
        batch = next(loader)
        yield model.classify(batch.to(model.device), names).float().cpu()
        bar.update(batch.num_graphs)


def _columns(node: Tensor, scores: Tensor) -> dict[str, Any]:
    return {"node": node.numpy(), "scores": scores.numpy(), "predicted": scores.argmax(-1).numpy()}


def _told(value: Any) -> str:
    """What a setting is, without where it lies in this process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _fingerprint(model: TextGraphLM) -> str:
    """Of everything that may have been trained, whether it is frozen by now or not; a sample of the rest."""
    parts = []
    for name, value in sorted(model.state_dict().items()):
        whole = "lora_" in name or name.startswith(f"{model.own_module}.") or value.numel() <= 128
        flat = value.reshape(-1)
        parts.append(flat if whole else flat[:: flat.numel() // 128])
    parts += [value for _, value in sorted(trained_parameters(model).items())]
    return _digest(parts)


def _tensors(graph: Data) -> Iterator[Tensor]:
    """A graph's tensors: a transform may print like another that does something else."""
    yield from (value for _, value in sorted(graph.to_dict().items()) if isinstance(value, Tensor))


def _tokens(store: TokenStore, step: int = 1 << 16) -> Iterator[Tensor]:
    """All tokens of all texts, some of them at a time."""
    for start in range(0, len(store), step):
        yield from store.gather(torch.arange(start, min(start + step, len(store))))


def _digest(tensors: Iterable[Tensor]) -> str:
    out = hashlib.sha256()
    for x in tensors:
        out.update(f"{x.dtype}{tuple(x.shape)}".encode())
        out.update(x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data if x.numel() else b"")
    return out.hexdigest()[:16]


def _claim(folder: Path, about: dict[str, Any], resume: bool) -> None:
    """Says what the folder is for, or checks that it is for this."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / _ABOUT).is_file():
        if not resume:
            raise ValueError(f"predict_nodes: {folder} holds predictions already; use another folder or resume=True")
        found = json.loads((folder / _ABOUT).read_text())
        other = sorted(key for key in about if found.get(key, about[key]) != about[key])
        other = [key for key in other if key != "first graph"] or other  # of which it follows
        if other:
            raise ValueError(
                f"predict_nodes: {folder} holds predictions with other {', '.join(map(repr, other))}; use another "
                "folder, or delete this one"
            )
        return
    with saving_file(folder / _ABOUT) as part:
        part.write_text(json.dumps(about, indent=1))


def _write(path: Path, tables: Any, num_classes: int) -> None:
    """One file of one or more tables, which is there whole or not at all."""
    with saving_file(path) as part:
        if path.suffix == ".npz":
            parts = list(tables) or [_columns(torch.empty(0, dtype=torch.long), torch.empty(0, num_classes))]
            node, scores, predicted = (
                np.concatenate([x[key] for x in parts]) for key in ("node", "scores", "predicted")
            )
            np.savez(part, node=node, scores=scores, predicted=predicted)
        else:
            pa, parquet = _pyarrow()
            kinds = {"node": pa.int64(), "scores": pa.list_(pa.float32(), num_classes), "predicted": pa.int64()}
            schema = pa.schema(list(kinds.items()))
            with parquet.ParquetWriter(part, schema) as writer:
                for table in tables:
                    flat = pa.FixedSizeListArray.from_arrays(pa.array(table["scores"].reshape(-1)), num_classes)
                    writer.write_table(pa.table([table["node"], flat, table["predicted"]], schema=schema))


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".npz":
        with np.load(path) as saved:
            return {key: saved[key] for key in ("node", "scores", "predicted")}
    _, parquet = _pyarrow()
    table = parquet.read_table(path).combine_chunks()
    width = table.schema.field("scores").type.list_size
    scores = table["scores"].combine_chunks()
    flat = scores.flatten() if len(scores) else scores.values
    return {
        "node": table["node"].to_numpy().copy(),
        "scores": flat.to_numpy(zero_copy_only=False).reshape(-1, width).copy(),
        "predicted": table["predicted"].to_numpy().copy(),
    }


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "predict_nodes: format='parquet' needs pyarrow; pip install 'pyg-textgraph[parquet]', or use format='npz'"
        ) from error
    return pyarrow, parquet
