"""The tokens of a whole graph's texts, outside of PyG's containers."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from pyg_textgraph.atomic import reading_folder, saving_folder
from pyg_textgraph.data.mapped_array import mapped_array
from pyg_textgraph.data.tokenization import tokenize_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TokenStore:
    """Token ids of N texts as one flat array with offsets, in memory or memory-mapped.

    A sampling loader would copy tokens kept in ``Data`` whole into every mini-batch, so those of a big graph live here.
    DataLoader workers share it with the process that made them, however they are started: a memory-mapped store travels
    as its path, another one moves to shared memory when the first worker is spawned.

    Args:
        ids: All token ids, text after text.
        num_tokens: Number of tokens per text.

    Shapes:
        - **ids** (T,) any integer type; **num_tokens** (N,)

    Raises:
        ValueError: If a token id is negative or too large, or ``num_tokens`` does not add up to the length of ``ids``.
    """

    def __init__(self, ids: Tensor, num_tokens: Tensor) -> None:
        for name, x in (("ids", ids), ("num_tokens", num_tokens)):
            if x.dim() != 1 or x.is_floating_point() or x.dtype == torch.bool:
                raise ValueError(f"TokenStore: '{name}' is {x.dtype} of shape {tuple(x.shape)}, expected integers (n,)")
        ids, num_tokens = ids.cpu(), num_tokens.cpu().long()
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < 2**31:
            bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise ValueError(f"TokenStore: 'ids' holds {bad}, expected token ids in [0, 2³¹)")
        if num_tokens.numel() and int(num_tokens.min()) < 0:
            raise ValueError(f"TokenStore: 'num_tokens' holds {int(num_tokens.min())}, expected counts of 0 or more")
        if int(num_tokens.sum()) != ids.numel():
            raise ValueError(f"TokenStore: 'num_tokens' adds up to {int(num_tokens.sum())} but there are {ids.numel()}")
        # tensors, because those move to shared memory when a spawned worker gets them
        self._ids: Tensor | NDArray[np.int32] = ids.to(torch.int32)
        self._ptr: Tensor | NDArray[np.int64] = F.pad(num_tokens.cumsum(0), (1, 0))
        self._path: Path | None = None

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        empty: str = "error",
        *,
        progress: bool = False,
    ) -> Self:
        """Tokenizes one text per node; arguments as :func:`~pyg_textgraph.data.tokenize_texts`."""
        return cls(*tokenize_texts(texts, tokenizer, empty, progress=progress))

    @classmethod
    def write(
        cls,
        folder: str | Path,
        texts: Iterable[str],
        tokenizer: PreTrainedTokenizerBase,
        empty: str = "error",
        *,
        chunk: int = 4096,
        progress: bool = False,
    ) -> Self:
        """Tokenizes texts as they come, straight to disk, and opens the store; nothing need fit into memory.

        Args:
            folder: Where the store goes, all or nothing.
            texts: One per node, such as a generator that reads a file.
            tokenizer: Any Hugging Face tokenizer.
            empty: See :func:`~pyg_textgraph.data.tokenize_texts`.
            chunk: Texts per call of the tokenizer.
            progress: Whether to show a progress bar.
        """
        counts = array("q")
        with saving_folder(folder) as new, open(new / "ids.npy", "wb") as file:
            num_tokens = 0
            _write_header(file, num_tokens)
            parts = iter(tqdm(texts, "tokenizing", disable=not progress))
            while part := list(islice(parts, chunk)):
                ids, count = tokenize_texts(part, tokenizer, empty, chunk=chunk, first=len(counts))
                file.write(ids.numpy().data)
                counts.extend(count.tolist())
                num_tokens += ids.numel()
            file.seek(0)
            _write_header(file, num_tokens)
            file.flush()
            ptr = np.zeros(len(counts) + 1, np.int64)
            np.cumsum(np.frombuffer(counts, np.int64), out=ptr[1:])
            _write_rest(new, ptr)
        return cls.load(folder)

    def save(self, folder: str | Path) -> None:
        """Writes ``ids.npy``, ``ptr.npy`` and ``store.json``, all or nothing."""
        if self._path is not None and self._path.resolve() == Path(folder).resolve():
            return  # its own files
        with saving_folder(folder) as new:
            np.save(new / "ids.npy", np.asarray(self._ids))
            _write_rest(new, np.asarray(self._ptr))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Opens a saved store memory-mapped.

        Raises:
            FileNotFoundError: If the folder holds no complete store.
            ValueError: If the files do not fit each other.
        """
        with reading_folder(folder) as folder:
            if not (folder / "store.json").exists():
                raise FileNotFoundError(f"TokenStore: {folder / 'store.json'} is missing; the store is not complete")
            self = cls.__new__(cls)
            try:
                told = json.loads((folder / "store.json").read_text())
            except ValueError as error:
                raise ValueError(f"TokenStore: {folder / 'store.json'} is damaged: {error}") from None
            self._open(folder)
        found = {"num_texts": len(self), "num_tokens": len(self._ids)}
        ptr = self._ptr
        if told != found or ptr[0] != 0 or ptr[-1] != len(self._ids) or bool((ptr[1:] < ptr[:-1]).any()):
            raise ValueError(f"TokenStore: {folder} holds {found}, its store.json says {told}")
        return self

    def _open(self, folder: Path) -> None:
        self._path = folder
        self._ids = mapped_array(folder / "ids.npy", np.int32, "TokenStore")
        self._ptr = mapped_array(folder / "ptr.npy", np.int64, "TokenStore")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if self._path is None else {"_path": self._path, "size": (len(self), len(self._ids))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_path"] is not None:
            self._open(state["_path"])
            if state["size"] != (len(self), len(self._ids)):
                raise ValueError(f"TokenStore: another store was written to {self._path} since this one was opened")
        else:
            self.__dict__.update(state)

    def __len__(self) -> int:
        return len(self._ptr) - 1

    def __getitem__(self, index: int) -> Tensor:
        """The token ids of one text, int64."""
        return self.gather(torch.tensor([range(len(self))[index]]))[0]

    def gather(
        self,
        nodes: Tensor,
        target: int | Tensor | None = None,
        *,
        max_tokens: int | None = None,
        max_target_tokens: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The tokens of some texts, one after the other.

        Args:
            nodes: Which texts.
            target: Places in **nodes** that ``max_target_tokens`` cuts; all others are cut by ``max_tokens``.
            max_tokens: How many tokens of a text are kept, from its start; all by default.
            max_target_tokens: The same for targets.

        Shapes:
            - **nodes** (n,)
            - **returns** token ids (T,) int64 and their number per text (n,) int64

        Raises:
            IndexError: If a node is out of range.
            ValueError: If a limit is not positive.
        """
        if nodes.dim() != 1 or nodes.is_floating_point() or nodes.dtype == torch.bool:
            got = f"{nodes.dtype} of shape {tuple(nodes.shape)}"
            raise ValueError(f"TokenStore: 'nodes' is {got}, expected integers (n,)")
        index = nodes.cpu().numpy()
        if index.size and (index.min() < 0 or index.max() >= len(self)):
            bad = index.max() if index.max() >= len(self) else index.min()
            raise IndexError(f"TokenStore: 'nodes' holds {bad} but there are {len(self)} texts")
        for name, limit in (("max_tokens", max_tokens), ("max_target_tokens", max_target_tokens)):
            if limit is not None and limit < 1:
                raise ValueError(f"TokenStore: '{name}' is {limit}, expected at least 1")
        all_ids, ptr = np.asarray(self._ids), np.asarray(self._ptr)
        start = ptr[index]
        count = ptr[index + 1] - start
        limits = np.full(index.size, np.iinfo(np.int64).max if max_tokens is None else max_tokens)
        if target is not None:
            place = np.asarray(target).reshape(-1)
            if place.dtype.kind not in "iu" or (place < 0).any() or (place >= index.size).any():
                raise ValueError(f"TokenStore: 'target' is {place.tolist()}, expected places in [0, {index.size})")
            limits[place] = np.iinfo(np.int64).max if max_target_tokens is None else max_target_tokens
        count = np.minimum(count, limits)
        # place of every token: its text's start, plus how far it is from the first one taken of that text
        place = np.arange(count.sum()) + np.repeat(start - (count.cumsum() - count), count)
        return torch.from_numpy(all_ids[place].astype(np.int64)), torch.from_numpy(count)

    def __repr__(self) -> str:
        where = f", {str(self._path)!r}" if self._path is not None else ""
        return f"{self.__class__.__name__}({len(self)} texts, {int(self._ptr[-1])} tokens{where})"


def _write_header(file: IO[bytes], num_tokens: int) -> None:
    # NumPy leaves room for the length to grow, so the header's own length is always the same
    np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (num_tokens,)})


def _write_rest(folder: Path, ptr: NDArray[np.int64]) -> None:
    np.save(folder / "ptr.npy", ptr)
    (folder / "store.json").write_text(json.dumps({"num_texts": len(ptr) - 1, "num_tokens": int(ptr[-1])}))
