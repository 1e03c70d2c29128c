"""GTLM and GraphMachineLM in Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from pyg_textgraph.nn import GTLM
from pyg_textgraph.train.checkpoint import load_trained, trained_parameters
from pyg_textgraph.train.config import TrainConfig
from pyg_textgraph.train.evaluate import answer_tokens, written_answers

try:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

    try:  # in PyG's order, so that its data modules are of the same package
        from lightning.pytorch import LightningModule
    except ImportError:
        from pytorch_lightning import LightningModule
except ImportError as error:
    raise ImportError(
        "pyg_textgraph.train.lightning needs Lightning and torchmetrics; pip install 'pyg-textgraph[lightning]'"
    ) from error

from pyg_textgraph.metrics.torchmetrics import TextExactMatch


class LightningLM(LightningModule):
    """A language model whose forward gives a loss, such as :class:`~pyg_textgraph.nn.GraphMachineLM`, in Lightning.

    AdamW with our own loop's schedule, :meth:`TrainConfig.rate <pyg_textgraph.train.TrainConfig.rate>`, over the steps
    of the run; one-dimensional parameters do not decay. Checkpoints hold what trains, and another model refuses them.
    Clipping, accumulation, precision and logging are Lightning's (``Trainer(gradient_clip_val=1.0, …)``).

    Args:
        model: Called with the batch's items as keywords; returns something with ``.loss``.
        lr: The highest rate.
        weight_decay: AdamW's.
        warmup: Share of all steps in which the rate rises from 0.
        final_lr: Where the cosine ends, as a share of the highest rate.

    Example:
        >>> module = LightningLM(GraphMachineLM(config), lr=1e-3)
        >>> Trainer(max_steps=1000, gradient_clip_val=1.0).fit(module, loader)
    """

    def __init__(
        self, model: nn.Module, lr: float, *, weight_decay: float = 0.1, warmup: float = 0.1, final_lr: float = 0.1
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.lr, self.weight_decay = lr, weight_decay
        self.config = TrainConfig(warmup=warmup, final_lr=final_lr)
        self.strict_loading = False  # checkpoints leave out what is frozen
        self.save_hyperparameters("lr", "weight_decay", "warmup", "final_lr")

    def forward(self, batch: Any) -> Any:
        """What the model says of a batch."""
        return self.model(**batch)

    def size(self, batch: Any) -> int:
        """Examples in a batch."""
        return len(batch["input_ids"])

    def param_groups(self) -> list[dict[str, Any]]:
        """What the optimizer gets."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trained if p.dim() > 1], "lr": self.lr, "weight_decay": self.weight_decay},
            {"params": [p for p in trained if p.dim() <= 1], "lr": self.lr, "weight_decay": 0.0},
        ]

    def configure_optimizers(self) -> Any:
        """AdamW and the schedule, moved on after every step."""
        optimizer = torch.optim.AdamW(self.param_groups())
        num_steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.config.rate(step, num_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_fit_start(self) -> None:
        """Models come out of ``from_pretrained`` in evaluation mode, and Lightning would leave dropout off."""
        self.model.train()

    def on_train_start(self) -> None:
        """Also where a run goes on in the middle of an epoch, which Lightning does not announce."""
        self.on_train_epoch_start()

    def on_train_epoch_start(self) -> None:
        """Tells data sets and samplers that draw anew in every epoch."""
        loader = self.trainer.train_dataloader
        for name in ("dataset", "node_sampler"):
            part: Any = getattr(loader, name, None)
            if hasattr(part, "set_epoch"):
                part.set_epoch(self.current_epoch)

    def training_step(self, batch: Any, index: int) -> Tensor:
        """The loss, logged as ``train_loss``."""
        loss: Tensor = self(batch).loss
        self.log("train_loss", loss, batch_size=self.size(batch), prog_bar=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """Logs ``val_loss`` and what else there is."""
        self._evaluate(batch, "val")

    def test_step(self, batch: Any, index: int) -> None:
        """Logs ``test_loss`` and what else there is."""
        self._evaluate(batch, "test")

    def _evaluate(self, batch: Any, stage: str) -> None:
        loss = self(batch).loss
        if loss is not None:
            self.log(f"{stage}_loss", loss, batch_size=self.size(batch), prog_bar=True, sync_dist=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leaves out what is frozen."""
        checkpoint["state_dict"] = {f"model.{name}": p for name, p in trained_parameters(self.model).items()}

    @torch.no_grad()
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuses a checkpoint of another model."""
        load_trained(self.model, {name.removeprefix("model."): p for name, p in checkpoint["state_dict"].items()})


class LightningGTLM(LightningLM):
    """A GTLM in Lightning, fed by PyG's ``DataLoader``, ``NodeLoader``, ``LightningDataset`` or ``LightningNodeData``.

    As :class:`LightningLM`, with the graph biases at a rate of their own. Validation and test log the loss and, asked
    to, how good the answers are: accuracy and macro-F1 of scored class names, or exact match of written answers.

    Args:
        model: The model.
        lr: Highest rate of the adapters.
        bias_lr: Highest rate of the graph biases, commonly 20 to 200 times the adapters'; they do not decay.
        class_names: Evaluates by scoring these names, of which the graphs' ``y`` names one.
        max_new_tokens: Evaluates by writing answers; more than the longest answer has.
        metrics: Instead of those above; updated with scores (B, C) and ``y`` (B,), or with written answers (None where
            they did not end) and true ones.
        weight_decay: AdamW's, of the adapters.
        warmup: Share of all steps in which the rates rise from 0.
        final_lr: Where the cosine ends, as a share of the highest rate.

    Raises:
        ValueError: If evaluation is asked for in both ways, or **metrics** are given without one.

    Example:
        >>> module = LightningGTLM(model, lr=2e-4, bias_lr=2e-2, class_names=data.class_names)
        >>> Trainer(max_epochs=4, gradient_clip_val=1.0).fit(module, LightningDataset(train, val, batch_size=8))
    """

    def __init__(
        self,
        model: GTLM,
        lr: float,
        bias_lr: float,
        *,
        class_names: Sequence[str] | None = None,
        max_new_tokens: int | None = None,
        metrics: MetricCollection | None = None,
        weight_decay: float = 0.1,
        warmup: float = 0.1,
        final_lr: float = 0.1,
    ) -> None:
        super().__init__(model, lr, weight_decay=weight_decay, warmup=warmup, final_lr=final_lr)
        if class_names is not None and max_new_tokens is not None:
            raise ValueError("LightningGTLM: 'class_names' and 'max_new_tokens' are two ways to evaluate; give one")
        if metrics is None and class_names is not None:
            n = len(class_names)
            accuracy, f1 = MulticlassAccuracy(n, average="micro"), MulticlassF1Score(n, average="macro")
            metrics = MetricCollection({"accuracy": accuracy, "macro_f1": f1})
        elif metrics is None and max_new_tokens is not None:
            metrics = MetricCollection({"exact_match": TextExactMatch()})
        elif metrics is not None and class_names is None and max_new_tokens is None:
            raise ValueError(
                "LightningGTLM: 'metrics' need answers; give 'class_names' to score them or 'max_new_tokens' to write "
                "them"
            )
        self.bias_lr, self.class_names, self.max_new_tokens = bias_lr, class_names, max_new_tokens
        self.metrics = nn.ModuleDict(
            {} if metrics is None else {s: metrics.clone(prefix=f"{s}_") for s in ("val", "test")}
        )
        self.save_hyperparameters("bias_lr", "max_new_tokens")

    def forward(self, batch: Batch) -> Any:
        """The model's output for a batch of graphs."""
        return self.model(batch)

    def size(self, batch: Batch) -> int:
        """Graphs in a batch."""
        return int(batch.num_graphs)

    def param_groups(self) -> list[dict[str, Any]]:
        """Adapters and graph biases."""
        return self.model.param_groups(self.lr, self.bias_lr, self.weight_decay)

    def _evaluate(self, batch: Batch, stage: str) -> None:
        super()._evaluate(batch, stage)
        if stage not in self.metrics:
            return
        metrics: Any = self.metrics[stage]
        if self.class_names is not None:
            metrics.update(self.model.classify(batch, self.class_names), batch.y)
        elif self.max_new_tokens is not None:
            truths = [text.strip() for text in self.model.tokenizer.batch_decode(answer_tokens(batch))]
            metrics.update(written_answers(self.model, batch, self.max_new_tokens), truths)
        self.log_dict(metrics, batch_size=self.size(batch), prog_bar=True)
