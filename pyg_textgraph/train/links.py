"""Training on links: in-batch negatives, masked texts first, clean ones afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from pyg_textgraph.data import NeighborBatch, SpanMasking
from pyg_textgraph.metrics import positive_ranks
from pyg_textgraph.nn.link_loss import KnownLinks, false_negatives, link_loss, pair_filter
from pyg_textgraph.nn.models.graphformers.base import TextGraphEncoder
from pyg_textgraph.sampling import NeighborTextSampler
from pyg_textgraph.train.config import TrainConfig
from pyg_textgraph.train.trainer import Trainer


@dataclass(frozen=True, eq=False)
class LinkBatch:
    """Pairs of nodes with their neighbourhoods: the first nodes' B centres, then the second ones'.

    Shapes: **pair** (2, B)
    """

    centres: NeighborBatch
    pair: Tensor

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.centres.to(device), self.pair.to(device))


class LinkObjective(nn.Module):
    """The contrastive loss of a text-graph encoder on a :class:`LinkBatch`.

    Args:
        model: The encoder.
        known: Links that are no negatives; none by default.
        filters: Whether pairs that see their answer are left out, and false negatives are.
        temperature: See :func:`~pyg_textgraph.nn.link_loss`.
        autocast: Type of the encoder's products, such as ``torch.bfloat16``; that of its parameters by default.
    """

    def __init__(
        self,
        model: TextGraphEncoder,
        known: KnownLinks | None = None,
        filters: bool = True,
        temperature: float = 1.0,
        autocast: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.model, self.known, self.filters = model, known, filters
        self.temperature, self.autocast = temperature, autocast

    def forward(self, batch: LinkBatch) -> Tensor:
        with torch.autocast(batch.pair.device.type, self.autocast, enabled=self.autocast is not None):
            centres = self.model(batch.centres)
        query, key = centres.to(self.model.encoder.dtype).chunk(2)
        if not self.filters:
            return link_loss(query, key, temperature=self.temperature)
        return link_loss(
            query,
            key,
            keep=pair_filter(batch.pair, *batch.centres.neighbor_nodes.chunk(2)),
            query_node=batch.pair[0],
            key_node=batch.pair[1],
            known=self.known,
            temperature=self.temperature,
        )


class LinkTrainer(Trainer):
    r"""Trains a text-graph encoder to predict links, in two stages (`Yang et al., 2021
    <https://arxiv.org/abs/2105.02605>`_, Sec. 3.3).

    First on masked texts, until the validation score has not improved **patience** times in a row, then on clean ones.
    Both stages have the same loss. The stage follows from the scores so far, so a resumed run is in the right one.
    Under DDP every rank takes its share of each batch, and negatives come from all of it; a last batch with fewer links
    than ranks is left out, other links every epoch.

    Args:
        objective: The model with its loss, wrapped in DDP where there are several ranks.
        sampler: Over the training graph. A link's ends never see each other as neighbours.
        links: To be predicted.
        optimizer: Over the model's parameters.
        config: ``batch_size`` counts links, over all ranks.
        folder: Where checkpoints go, one that all ranks see; the first one writes.
        validate: Gives a score, higher is better; the parameters of the best one are kept.
        masking: Of the first stage; without it there is only the second.
        patience: Validations without improvement that end the first stage.
        longest: Share of all steps after which the first stage ends in any case.
        name: Shown on the progress bar.

    Shapes: **links** (2, M)
    """

    def __init__(
        self,
        objective: LinkObjective | DistributedDataParallel,
        sampler: NeighborTextSampler,
        links: Tensor,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        folder: str | Path,
        validate: Callable[[nn.Module], float] | None = None,
        *,
        masking: SpanMasking | None = None,
        patience: int = 2,
        longest: float = 1.0,
        name: str = "training",
    ) -> None:
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        total = links.size(1)
        if total < self.ranks:
            raise ValueError(f"LinkTrainer: 'links' are {total}, expected at least one for each of {self.ranks} ranks")
        left_out = total % config.batch_size if total % config.batch_size < self.ranks else 0
        super().__init__(objective, _Numbers(total, total - left_out), optimizer, config, folder, validate, name)
        self.writes = self.rank == 0
        self.sampler, self.links, self.masking = sampler, links, masking
        self.patience, self.longest = patience, longest

    def _begin(self, resume: bool) -> None:
        if self.writes or resume:
            super()._begin(resume)
        if self.ranks > 1:
            steps: list[int] = [0] * self.ranks
            dist.all_gather_object(steps, self.step)
            if len(set(steps)) > 1:
                raise ValueError(f"LinkTrainer: the ranks go on from steps {steps}; 'folder' must be one that all see")

    def _asked_to_stop(self, stopped: threading.Event) -> bool:
        """Whether any rank was."""
        if self.ranks == 1:
            return stopped.is_set()
        asked = torch.tensor(int(stopped.is_set()), device=self._device())
        dist.all_reduce(asked, dist.ReduceOp.MAX)
        return bool(asked)

    def _save(self) -> None:
        super()._save()
        if self.ranks > 1:
            dist.barrier()  # the others may read it next

    @property
    def masked(self) -> bool:
        """Whether training is in its first stage."""
        if self.masking is None or self.step >= self.longest * self.num_steps:
            return False
        return not stopped_improving([row["score"] for row in self.history if "score" in row], self.patience)

    def batch(self, links: Tensor, epoch: int) -> LinkBatch:
        """This rank's share of some links, by their numbers. Shapes: **links** (B,)."""
        pair = self.links[:, links[self.rank :: self.ranks]]
        centres = self.sampler(pair.flatten(), pair.flip(0).flatten(), epoch)
        if self.masking is not None and self.masked:
            seed = (self.config.seed * 1_000_003 + self.step) * self.ranks + self.rank
            centres = self.masking(centres, torch.Generator().manual_seed(seed))
        return LinkBatch(centres, pair)

    def _epoch(self, epoch: int) -> Iterator[list[Any]]:
        for group in super()._epoch(epoch):
            yield [self.batch(links, epoch) for links in group]


class _Numbers(Dataset[int]):
    """The numbers up to **total**, in each epoch **size** of them, in turn."""

    def __init__(self, total: int, size: int) -> None:
        self.total, self.size, self.start = total, size, 0

    def set_epoch(self, epoch: int) -> None:
        self.start = epoch * (self.total - self.size)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return (self.start + index) % self.total


def stopped_improving(scores: Sequence[float], patience: int) -> bool:
    """Whether there ever were **patience** scores in a row that are not above the best before them."""
    best, waited = -float("inf"), 0
    for score in scores:
        best, waited = (score, 0) if score > best else (best, waited + 1)
        if waited >= patience:
            return True
    return False


def link_ranks(
    model: TextGraphEncoder,
    sampler: NeighborTextSampler,
    links: Tensor,
    candidates: Tensor,
    *,
    batch_size: int = 256,
    progress: bool = False,
) -> Tensor:
    """The rank of every link's second node among wrong answers, by inner product, ties against it.

    Args:
        model: Embeds every node once, so the links must not be among the sampler's edges.
        sampler: Over the edges that may be used.
        links: Query and right answer.
        candidates: Wrong answers, −1 for none.
        batch_size: Texts at a time.
        progress: Whether to show a progress bar.

    Shapes: **links** (2, Q); **candidates** (Q, M); **returns** (Q,)
    """
    nodes = torch.cat([links.flatten(), candidates[candidates >= 0]])
    index = model.embed(sampler, nodes, batch_size=batch_size, progress=progress)
    known = torch.where(candidates >= 0, candidates, links[1][:, None])  # whatever stands for none is embedded
    known = torch.cat([links[1][:, None], known], 1)  # scored by one product: equal embeddings have equal scores
    scores = []
    for some_query, some in zip(index.of(links[0]).split(64), known.split(64), strict=True):
        answers = index.of(some.flatten()).unflatten(0, some.shape)  # [64, 1 + M, d]
        scores.append(torch.einsum("qd,qmd->qm", some_query, answers))
    score = torch.cat(scores)
    return positive_ranks(score[:, 0], torch.where(candidates >= 0, score[:, 1:], -torch.inf))


def in_batch_candidates(links: Tensor, known: KnownLinks | None = None) -> Tensor:
    """The other links' second nodes as wrong answers, but for those that are right too: few nodes to be embedded.

    Shapes: **links** (2, Q) -> (Q, Q), −1 for none
    """
    query, key = links
    wrong = ~false_negatives(query, key, key, known)
    return torch.where(wrong, key.expand(len(query), -1), -1)
