"""The three biases of one layer. Each gives hidden channels per node pair and the weights that read them out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyg_textgraph.nn.bias.features import MagneticFeatures


class SPDBias(nn.Module):
    r"""One number per head and shortest-path distance (GTLM, arXiv 2605.10247; after Graphormer).

    Distance :math:`d \ge 1` reads row :math:`\min(d, \text{max\_dist}) - 1`, unreachable pairs share the last row
    unless **unreachable** gives them one of their own; a node and itself get 0.

    Args:
        num_heads: Heads :math:`H`.
        max_dist: Rows of the table.
        unreachable: Whether unreachable pairs have their own row.
    """

    def __init__(self, num_heads: int, max_dist: int = 8, unreachable: bool = False) -> None:
        super().__init__()
        self.num_heads, self.max_dist, self.unreachable = num_heads, max_dist, unreachable
        self.table = nn.Parameter(torch.empty(num_heads, max_dist + unreachable))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.table)

    def one_hot(self, spd: Tensor) -> Tensor:
        """Which row of the table each pair reads; the same for all layers.

        Shapes:
            - **spd** (\\*, P) hops, −1 = unreachable; **returns** (\\*, max_dist, P)
        """
        rows = torch.arange(self.table.size(1), device=spd.device)[:, None]
        row = torch.where(spd < 0, self.table.size(1), spd.clamp(max=self.max_dist)) - 1  # −1: a node and itself
        return (row[..., None, :] == rows).to(self.table.dtype)

    def channels(self, one_hot: Tensor) -> Tensor:
        return one_hot

    def readout(self) -> tuple[Tensor, Tensor | None]:
        return self.table, None

    def extra_repr(self) -> str:
        return f"{self.num_heads}, max_dist={self.max_dist}, unreachable={self.unreachable}"


class RRWPBias(nn.Module):
    """An MLP over random-walk probabilities, ``Linear(K, 4K) → SiLU → Linear(4K, H)`` (GTLM, arXiv 2605.10247).

    Args:
        num_heads: Heads :math:`H`.
        walk_length: Number of probabilities :math:`K`.
    """

    def __init__(self, num_heads: int, walk_length: int = 16) -> None:
        super().__init__()
        self.lin1 = nn.Linear(walk_length, 4 * walk_length)
        self.lin2 = nn.Linear(4 * walk_length, num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.lin1.reset_parameters()
        nn.init.zeros_(self.lin2.weight)
        nn.init.zeros_(self.lin2.bias)

    def channels(self, rrwp: Tensor) -> Tensor:
        """Shapes: **rrwp** (\\*, K, P); **returns** (\\*, 4K, P)."""
        if rrwp.size(-2) != self.lin1.in_features:
            raise ValueError(f"'rrwp' has {rrwp.size(-2)} steps, expected {self.lin1.in_features}; see AddRRWP")
        return F.silu(torch.matmul(self.lin1.weight, rrwp) + self.lin1.bias[:, None])

    def readout(self) -> tuple[Tensor, Tensor]:
        return self.lin2.weight, self.lin2.bias


class MagneticBias(nn.Module):
    r"""An MLP over a learned spectral kernel of the magnetic Laplacian (GTLM, arXiv 2605.10247).

    With eigenvalues :math:`\lambda` and eigenvectors :math:`V`: :math:`\ell = \mathrm{Linear}(\lambda)`,
    :math:`\varphi = \mathrm{SiLU}(\mathrm{Linear}(\ell \oplus \bar\ell))`,
    :math:`K = V \mathrm{diag}(\varphi) V^H`, bias = :math:`\mathrm{Linear} \to \mathrm{SiLU} \to \mathrm{Linear}` of
    :math:`\Re K \oplus \Im K`. The mean :math:`\bar\ell` is over the graph's own eigenvalues.

    Args:
        num_heads: Heads :math:`H`.
        kernel_dim: Channels of :math:`K` (``d_mag``).
        eigval_dim: Width of :math:`\ell`.
    """

    def __init__(self, num_heads: int, kernel_dim: int = 32, eigval_dim: int = 64) -> None:
        super().__init__()
        self.lin_eigval = nn.Linear(1, eigval_dim)
        self.lin_filter = nn.Linear(2 * eigval_dim, kernel_dim)
        self.lin1 = nn.Linear(2 * kernel_dim, kernel_dim)
        self.lin2 = nn.Linear(kernel_dim, num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for lin in (self.lin_eigval, self.lin_filter, self.lin1):
            lin.reset_parameters()
        nn.init.zeros_(self.lin2.weight)
        nn.init.zeros_(self.lin2.bias)

    def filter(self, eigvals: Tensor, kept: Tensor) -> Tensor:
        r"""The learned filter :math:`\varphi`. Shapes: **eigvals**, **kept** (B, M); **returns** (B, M, kernel_dim)."""
        x = self.lin_eigval(eigvals[..., None])  # [B, M, eigval_dim]
        mean = (x * kept[..., None]).sum(1, keepdim=True) / kept.sum(1).clamp(min=1)[:, None, None]
        return F.silu(self.lin_filter(torch.cat([x, mean.expand_as(x)], -1)))

    def channels(self, features: MagneticFeatures) -> Tensor:
        r"""The hidden layer. Its first product is taken into the spectrum, where it costs nothing:
        :math:`W [\Re K; \Im K] = \Re (V D_\Re V^H) + \Im (V D_\Im V^H)` with
        :math:`D_\Re = \mathrm{diag}(\varphi W_\Re^\top)` and :math:`D_\Im = \mathrm{diag}(\varphi W_\Im^\top)`.

        Shapes:
            - **returns** (B, N, kernel_dim, N), query first; with listed pairs (kernel_dim, P)
        """
        phi = self.filter(features.eigvals, features.kept)
        w_re, w_im = self.lin1.weight.chunk(2, dim=1)
        re, im = phi @ w_re.T, phi @ w_im.T  # [B, M, C]
        x, y = features.u.chunk(2, dim=-1)  # [B, N, M] each: V = x + iy
        if features.pairs is not None:
            graph, query, key = features.pairs
            (xq, yq), (xk, yk) = ((x[graph, node], y[graph, node]) for node in (query, key))  # [P, M]
            product = torch.cat([xq * xk + yq * yk, yq * xk - xq * yk], -1)
            count = graph.bincount(minlength=len(x)).tolist()  # pairs stand graph after graph
            weight = torch.cat([re, im], 1)  # [B, 2M, C]
            hidden = torch.cat([own @ w for own, w in zip(product.split(count), weight, strict=True)]).T  # [C, P]
        else:
            re, im = re.transpose(1, 2)[:, None], im.transpose(1, 2)[:, None]  # [B, 1, C, M]
            x, y = x[:, :, None], y[:, :, None]  # [B, N, 1, M]
            query = torch.cat([x * re + y * im, y * re - x * im], -1)  # [B, N, C, 2M]
            b, n, c, m = query.shape
            hidden = torch.bmm(query.view(b, n * c, m), features.u.transpose(1, 2)).view(b, n, c, n)
        return F.silu(hidden + self.lin1.bias[:, None])

    def readout(self) -> tuple[Tensor, Tensor]:
        return self.lin2.weight, self.lin2.bias
