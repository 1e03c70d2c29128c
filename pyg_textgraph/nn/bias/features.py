"""What the biases of all layers share: pair features of a batch, with channels where a matrix product wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data import to_dense_pairs

Flow = Literal["source_to_target", "target_to_source"]


@dataclass(frozen=True)
class MagneticFeatures:
    r"""Spectrum of each graph's magnetic Laplacian, eigenvectors as real numbers :math:`U = [\Re V, \Im V]`.

    Shapes:
        - **eigvals** (B, M), zero-padded; **kept** (B, M) bool, which of them are real
        - **u** (B, N, 2M), zero-padded
        - **pairs** (3, P) or None: the listed pairs: graph (ascending), query and key within it
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
    def from_batch(
        cls,
        batch: Data,
        names: tuple[str, ...],
        dtype: torch.dtype = torch.float32,
        *,
        pairs: Tensor | None = None,
        flow: Flow = "target_to_source",
    ) -> PairFeatures:
        """Reads ``spd``, ``rrwp`` and the magnetic spectrum of a batch, as the transforms store them.

        Args:
            batch: One graph or a PyG batch of them.
            names: Which features.
            dtype: Type of the floating-point ones.
            pairs: The pairs (query, key) that are wanted instead of all; nodes counted over the batch, graphs in turn.
            flow: Which path a pair stands for, in PyG's words: ``"source_to_target"`` the one that ends at the query,
                ``"target_to_source"`` the one from query to key.

        Shapes:
            - **pairs** (2, P)

        Raises:
            ValueError: If a feature that ``names`` asks for is missing or was computed for other pairs.
        """
        ptr = graph_ptr(batch)
        wanted = {"spd": ("spd", "AddSPD()"), "rrwp": ("rrwp", "AddRRWP(16)"),
                  "magnetic": ("magnetic_eigvals", "AddMagneticLaplacian()")}  # fmt: skip
        for name in names:
            key, transform = wanted[name]
            if key not in batch:
                raise ValueError(
                    f"the batch has no '{key}', which bias '{name}' needs; add {transform} to the transforms"
                )
            if pairs is None and "pair_index" in batch and name != "magnetic":
                raise ValueError(f"'{key}' holds listed pairs (k_hop), expected all pairs; drop k_hop from {transform}")
        backward = flow == "source_to_target"
        spd = rrwp = None
        if pairs is None:
            if "spd" in names:
                spd = to_dense_pairs(batch.spd, ptr)  # [B, from, to]
                spd = spd.transpose(1, 2) if backward else spd
            if "rrwp" in names:
                rrwp = to_dense_pairs(batch.rrwp.to(dtype), ptr)  # [B, from, to, K]
                rrwp = rrwp.permute(0, 2, 3, 1).contiguous() if backward else rrwp.transpose(2, 3).contiguous()
        elif set(names) & {"spd", "rrwp"}:
            row = pair_rows(batch, ptr, pairs.flip(0) if backward else pairs)
            spd = batch.spd[row] if "spd" in names else None
            rrwp = batch.rrwp[row].to(dtype).T.contiguous() if "rrwp" in names else None
        magnetic = magnetic_features(batch, ptr, dtype, pairs, flow) if "magnetic" in names else None
        return cls(spd, rrwp, magnetic)


def graph_ptr(batch: Data) -> Tensor:
    """Where the nodes of each graph of a batch start, (B + 1,); a single graph is a batch of one."""
    if "ptr" in batch:
        ptr: Tensor = batch.ptr
        return ptr
    device = next((x.device for x in batch.to_dict().values() if isinstance(x, Tensor)), None)
    return torch.tensor([0, batch.num_nodes], device=device)


def pair_rows(batch: Data, ptr: Tensor, path: Tensor) -> Tensor:
    """Where the flat pair features of a batch hold some pairs.

    Shapes:
        - **path** (2, P) from and to, nodes counted over the batch; **returns** (P,)

    Raises:
        ValueError: If a pair is not among the stored ones.
    """
    source, target = path
    if "pair_index" not in batch:
        size = ptr.diff()
        graph = torch.repeat_interleave(size)[source]  # [P]
        start = (size * size).cumsum(0) - size * size
        return start[graph] + (source - ptr[graph]) * size[graph] + target - ptr[graph]
    num_nodes = int(ptr[-1])
    stored, wanted = batch.pair_index[0] * num_nodes + batch.pair_index[1], source * num_nodes + target
    row = torch.searchsorted(stored, wanted)  # the transforms store pairs in ascending order
    if bool((row >= stored.numel()).any()) or not torch.equal(stored[row], wanted):
        raise ValueError("'pair_index' lacks pairs that see each other; give the transforms at least the layer's k_hop")
    return row


def magnetic_features(
    batch: Data,
    ptr: Tensor,
    dtype: torch.dtype,
    pairs: Tensor | None = None,
    flow: Flow = "target_to_source",
) -> MagneticFeatures:
    """Pads the flat spectra of a batch's graphs to one size; arguments as :meth:`PairFeatures.from_batch`.

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
    if flow == "source_to_target":
        v = v.conj()  # transposes the Hermitian kernel
    if pairs is not None:
        graph = torch.repeat_interleave(size)[pairs[0]]
        pairs = torch.stack([graph, *(pairs - ptr[graph])])
    return MagneticFeatures(eigvals, is_kept, torch.cat([v.real, v.imag], -1).to(dtype), pairs)
