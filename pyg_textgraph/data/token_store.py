"""The tokens of a whole graph's texts, outside of PyG's containers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_textgraph.data.tokenization import tokenize_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TokenStore:
    """Token ids of N texts as one flat array with offsets, in memory or memory-mapped.

    A sampling loader would copy tokens kept in ``Data`` whole into every mini-batch, so those of a big graph live here.
    A memory-mapped store pickles as its path: DataLoader workers share the pages.

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
        self._ids = ids.to(torch.int32).numpy()
        self._ptr = np.concatenate([[0], num_tokens.cumsum(0).numpy()]).astype(np.int64)
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

    def save(self, folder: str | Path) -> None:
        """Writes ``ids.npy``, ``ptr.npy`` and ``store.json`` (written last: it marks a whole store)."""
        folder = Path(folder)
        if self._path is not None and self._path.resolve() == folder.resolve():
            return  # its own files, which are mapped: writing over them would pull them from under every reader
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "store.json").unlink(missing_ok=True)
        np.save(folder / "ids.npy", self._ids)
        np.save(folder / "ptr.npy", self._ptr)
        (folder / "store.json").write_text(json.dumps({"num_texts": len(self), "num_tokens": int(self._ptr[-1])}))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Opens a saved store memory-mapped.

        Raises:
            FileNotFoundError: If the folder holds no complete store.
            ValueError: If the files do not fit each other.
        """
        folder = Path(folder)
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
        self._ids = _mapped(folder / "ids.npy", np.int32)
        self._ptr = _mapped(folder / "ptr.npy", np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path} if self._path is not None else self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_path"] is not None:
            self._open(state["_path"])
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
        start = self._ptr[index]
        count = self._ptr[index + 1] - start
        limits = np.full(index.size, np.iinfo(np.int64).max if max_tokens is None else max_tokens)
        if target is not None:
            place = np.asarray(target).reshape(-1)
            if place.dtype.kind not in "iu" or (place < 0).any() or (place >= index.size).any():
                raise ValueError(f"TokenStore: 'target' is {place.tolist()}, expected places in [0, {index.size})")
            limits[place] = np.iinfo(np.int64).max if max_target_tokens is None else max_target_tokens
        count = np.minimum(count, limits)
        # place of every token: its text's start, plus how far it is from the first one taken of that text
        place = np.arange(count.sum()) + np.repeat(start - (count.cumsum() - count), count)
        return torch.from_numpy(self._ids[place].astype(np.int64)), torch.from_numpy(count)

    def __repr__(self) -> str:
        where = f", {str(self._path)!r}" if self._path is not None else ""
        return f"{self.__class__.__name__}({len(self)} texts, {int(self._ptr[-1])} tokens{where})"


def _mapped(path: Path, dtype: type[np.generic]) -> NDArray[Any]:
    try:
        # an array of length 0 cannot be mapped
        out = np.load(path, mmap_mode="r" if path.stat().st_size > 128 else None, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"TokenStore: {path} is damaged: {error}") from None
    if out.dtype != dtype or out.ndim != 1:
        raise ValueError(f"TokenStore: {path} holds {out.dtype} of shape {out.shape}, expected {dtype.__name__} (n,)")
    return out
