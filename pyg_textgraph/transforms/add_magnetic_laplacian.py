import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.transforms._edges import check_memory, read_edges

Convention = Literal["paper", "union"]
CLUSTER_TOLERANCE = 1e-5  # consecutive eigenvalues at most this far apart share an eigenspace


@functional_transform("add_magnetic_laplacian")
class AddMagneticLaplacian(BaseTransform):
    r"""Adds eigenvalues and eigenvectors of the magnetic Laplacian (functional name: :obj:`add_magnetic_laplacian`).

    .. math::
        \mathbf{L} = \mathbf{I} - (\mathbf{D}_s^{-1/2} \mathbf{A}_s \mathbf{D}_s^{-1/2}) \odot
        e^{i 2 \pi q (\mathbf{A} - \mathbf{A}^{\top})}, \quad
        \mathbf{A}_s = (\mathbf{A} + \mathbf{A}^{\top}) / 2, \quad \mathbf{D}_s = \mathrm{diag}(\mathbf{A}_s \mathbf{1})

    (`Zhang et al., 2021 <https://arxiv.org/abs/2102.11391>`_, Eq. 2–5). It is Hermitian with eigenvalues in [0, 2]; the
    phase of an entry tells the direction of an edge. Self-loops are ignored and an isolated node has a 1 on the
    diagonal. The decomposition is dense: time grows with N³.

    The number M of eigenvectors may differ from graph to graph, so they are stored flat and batch by concatenation.

    Args:
        q: The potential: 0 ignores directions, 0.25 maps one-way edges to purely imaginary entries.
        num_eigvecs: If given, only this many smallest eigenvalues are kept, and then the rest of the last cluster of
            equal ones (consecutive ones at most 1e-5 apart): eigenvectors mean something only as a whole eigenspace.
        weighted: Whether edges have weights: ``data.edge_weight``, or else ``data.edge_attr`` with one non-negative
            number per edge, or else the values of ``data.adj_t``. Parallel edges add up. Otherwise they count once.
        convention: ``"paper"`` for :math:`\mathbf{A}_s` above, ``"union"`` for the elementwise maximum of
            :math:`\mathbf{A}` and :math:`\mathbf{A}^{\top}`: a one-way edge then weighs as much as a two-way one.

    Shapes:
        - **data.magnetic_eigvals** (M), float32, ascending
        - **data.magnetic_eigvecs** (N·M), complex64, row-major over (node, eigenvector)
        - **data.magnetic_num_eigvals** (1), int64, M

    Raises:
        ValueError: If an argument is out of range, or a weight is missing, negative or not finite.
    """

    def __init__(
        self,
        q: float = 0.25,
        num_eigvecs: int | None = None,
        weighted: bool = False,
        convention: Convention = "paper",
    ) -> None:
        if not math.isfinite(q):
            raise ValueError(f"AddMagneticLaplacian: q must be finite, got {q}")
        if num_eigvecs is not None and num_eigvecs < 1:
            raise ValueError(f"AddMagneticLaplacian: num_eigvecs must be at least 1, got {num_eigvecs}")
        if convention not in get_args(Convention):
            raise ValueError(f"AddMagneticLaplacian: convention must be 'paper' or 'union', got '{convention}'")
        self.q = q
        self.num_eigvecs = num_eigvecs
        self.weighted = weighted
        self.convention = convention

    def forward(self, data: Data) -> Data:
        edges = read_edges(data, "AddMagneticLaplacian", weighted=self.weighted)
        check_memory(32 * edges.num_nodes**2, "AddMagneticLaplacian", edges.num_nodes, "sample egos first")
        laplacian = torch.from_numpy(magnetic_laplacian(edges.adjacency().toarray(), self.q, self.convention))
        if not laplacian.imag.any():
            laplacian = laplacian.real  # an undirected graph: faster, and its eigenvectors have no arbitrary phase
        # torch and not numpy: its threads are one per DataLoader worker
        eigvals, eigvecs = torch.linalg.eigh(laplacian)  # [N], [N, N]
        kept = num_kept(eigvals, self.num_eigvecs)
        data.magnetic_eigvals = eigvals[:kept].to(edges.device, torch.float32)
        data.magnetic_eigvecs = eigvecs[:, :kept].flatten().to(edges.device, torch.complex64)
        data.magnetic_num_eigvals = torch.tensor([kept], device=edges.device)
        return data

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(q={self.q}, num_eigvecs={self.num_eigvecs}, weighted={self.weighted}, "
            f"convention='{self.convention}')"
        )


def magnetic_laplacian(
    adjacency: NDArray[np.float64], q: float, convention: Convention = "paper"
) -> NDArray[np.complex128]:
    r"""The magnetic Laplacian :math:`\mathbf{L}` of :class:`AddMagneticLaplacian`.

    Shapes:
        - **adjacency** (N, N), row = from, zero diagonal
        - **returns** (N, N), Hermitian
    """
    reverse = adjacency.T
    symmetric = (adjacency + reverse) / 2 if convention == "paper" else np.maximum(adjacency, reverse)
    degree = symmetric.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)  # D_s^{-1/2}
    phase = np.exp(2j * np.pi * q * (adjacency - reverse))
    laplacian: NDArray[Any] = np.eye(len(degree)) - scale[:, None] * symmetric * scale * phase
    return laplacian


def num_kept(eigvals: Tensor, wanted: int | None) -> int:
    """How many of the ascending ``eigvals`` to keep so that the last cluster of equal ones is whole."""
    if wanted is None:
        return len(eigvals)
    gaps = eigvals[wanted:] - eigvals[wanted - 1 : -1] > CLUSTER_TOLERANCE
    ends = gaps.nonzero()
    return wanted + int(ends[0]) if len(ends) else len(eigvals)
