"""What the biases of all layers share: the pair features of a batch, with channels where a matrix product wants them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data import to_dense_pairs


@dataclass(frozen=True)
class MagneticFeatures:
    r"""Spectrum of each graph's magnetic Laplacian, eigenvectors as real numbers :math:`U = [\Re V, \Im V]`.

    Shapes:
        - **eigvals** (B, M), zero-padded; **kept** (B, M) bool, which of them are real
        - **u** (B, N, 2M), zero-padded
        - **pairs** (2, P) or None: the listed pairs (query, key) that are wanted instead of all
    """

    eigvals: Tensor
    kept: Tensor
    u: Tensor
    pairs: Tensor | None = None


@dataclass(frozen=True)
class PairFeatures:
    """Pair features of a batch, channels in the last dimension but one; None where a feature is not used.

    Dense form: all pairs of a graph, (B, N, C, N), query first and key last. Listed form: (C, P).

    Shapes:
        - **spd** (B, N, N) or (P,) integer hops; **rrwp** (B, N, K, N) or (K, P)
    """

    spd: Tensor | None = None
    rrwp: Tensor | None = None
    magnetic: MagneticFeatures | None = None

    @classmethod
    def from_batch(cls, batch: Data, names: tuple[str, ...], dtype: torch.dtype = torch.float32) -> PairFeatures:
        """Reads ``spd``, ``rrwp`` and the magnetic spectrum of a batch; the path is the one from query to key.

        Raises:
            ValueError: If a feature that ``names`` asks for is missing or was computed for another form.
        """
        ptr = batch.ptr if "ptr" in batch else torch.tensor([0, batch.num_nodes])
        wanted = {"spd": ("spd", "AddSPD()"), "rrwp": ("rrwp", "AddRRWP(16)"),
                  "magnetic": ("magnetic_eigvals", "AddMagneticLaplacian()")}  # fmt: skip
        for name in names:
            key, transform = wanted[name]
            if key not in batch:
                raise ValueError(
                    f"the batch has no '{key}', which bias '{name}' needs; add {transform} to the transforms"
                )
            if "pair_index" in batch and name != "magnetic":
                raise ValueError(f"'{key}' holds listed pairs (k_hop), expected all pairs; drop k_hop from {transform}")
        spd = to_dense_pairs(batch.spd, ptr) if "spd" in names else None
        rrwp = to_dense_pairs(batch.rrwp.to(dtype), ptr).transpose(2, 3).contiguous() if "rrwp" in names else None
        return cls(spd, rrwp, magnetic_features(batch, ptr, dtype) if "magnetic" in names else None)


def magnetic_features(batch: Data, ptr: Tensor, dtype: torch.dtype, pairs: Tensor | None = None) -> MagneticFeatures:
    """Pads the flat spectra of a batch's graphs to one size.

    Raises:
        ValueError: If eigenvectors, eigenvalues and their number do not fit each other.
    """
    size, kept = ptr.diff(), batch.magnetic_num_eigvals.view(-1)
    if int((size * kept).sum()) != batch.magnetic_eigvecs.numel() or int(kept.sum()) != batch.magnetic_eigvals.numel():
        raise ValueError(
            f"'magnetic_eigvecs' has {batch.magnetic_eigvecs.numel()} and 'magnetic_eigvals' "
            f"{batch.magnetic_eigvals.numel()} entries, expected {int((size * kept).sum())} and {int(kept.sum())}"
        )
    n, m = (int(x.max()) if x.numel() else 0 for x in (size, kept))
    is_kept = torch.arange(m, device=kept.device) < kept[:, None]  # [B, M]
    is_node = torch.arange(n, device=kept.device) < size[:, None]  # [B, N]
    eigvals = batch.magnetic_eigvals.new_zeros(is_kept.shape, dtype=dtype)
    eigvals[is_kept] = batch.magnetic_eigvals.to(dtype)
    v = batch.magnetic_eigvecs.new_zeros(len(size), n, m)
    v[is_node[:, :, None] & is_kept[:, None]] = batch.magnetic_eigvecs
    return MagneticFeatures(eigvals, is_kept, torch.cat([v.real, v.imag], -1).to(dtype), pairs)
