"""How much of a query–key product rotary positions leave over a distance, and what a graph's shape does to that."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import sici
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.nn.gala.diagnostics.structure import bandwidth


def rope_retention(delta: Tensor | float, base: float, envelope: bool = False) -> Tensor:
    r"""Share of a query–key product that rotary positions retain at a distance (arXiv 2606.15633).

    The mean of :math:`\cos(\delta b^{-x})` over :math:`x \in [0, 1]`,
    :math:`r_b(\delta) = (\mathrm{Ci}(\delta) - \mathrm{Ci}(\delta/b)) / \ln b` with :math:`r_b(0) = 1`; its envelope is
    :math:`1 - (\ln\delta + \gamma) / \ln b`, at most 1.

    Args:
        delta: Distance between two tokens; its sign does not matter.
        base: The rotary base :math:`b`.
        envelope: Whether to return the envelope.

    Shapes:
        - **returns** as **delta**, float64

    Raises:
        ValueError: If the base is not greater than 1.
    """
    if base <= 1:
        raise ValueError(f"rope_retention: 'base' is {base}, expected more than 1")
    distance = torch.as_tensor(delta, dtype=torch.double).abs().cpu()
    safe = distance.where(distance > 0, 1)
    if envelope:
        value = (1 - (safe.log() + np.euler_gamma) / math.log(base)).clamp(max=1)
    else:
        value = torch.as_tensor(sici(safe.numpy())[1] - sici(safe.numpy() / base)[1]) / math.log(base)
    return value.where(distance > 0, 1.0)


def rope_mean_cosine(delta: Tensor | float, base: float, dim: int) -> Tensor:
    r"""What a head of ``dim`` channels retains: the mean of :math:`\cos(\delta b^{-2i/\mathrm{dim}})` over its pairs.

    Shapes:
        - **returns** as **delta**, float64
    """
    frequency = base ** -(torch.arange(0, dim, 2, dtype=torch.double) / dim)
    return torch.cos(torch.as_tensor(delta, dtype=torch.double)[..., None] * frequency).mean(-1)


def retention_bound(graph: Data, tau: float, base: float) -> float:
    r"""The envelope of the retention over the longest edge, :math:`\delta = \tau\,B(G)`, in the best order of nodes.

    Whatever the order, some edge of a graph of bandwidth :math:`B(G)` spans that many nodes. Where only an upper bound
    of the bandwidth is known (see :func:`bandwidth`), this is what reverse Cuthill–McKee order attains.

    Args:
        graph: Its ``edge_index``, directions ignored.
        tau: Tokens per node.
        base: The rotary base.
    """
    width, _ = bandwidth(graph)
    return float(rope_retention(tau * width, base, envelope=True))
