"""GTLM in Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch_geometric.data import Batch, Data
from transformers import Trainer, TrainerCallback, TrainingArguments

from pyg_textgraph.nn import GTLM
from pyg_textgraph.nn.models.text_graph_lm import storage
from pyg_textgraph.train.evaluate import answer_tokens

IGNORED = -100  # what Hugging Face pads predictions and labels with


def collate_graphs(graphs: Sequence[Data]) -> dict[str, Batch]:
    """Text graphs as one argument of :meth:`GTLM.forward <pyg_textgraph.nn.GTLM.forward>`, for ``data_collator=``."""
    return {"batch": Batch.from_data_list(list(graphs))}


class GTLMTrainer(Trainer):
    """Hugging Face's :class:`~transformers.Trainer` for a GTLM, with all its arguments, loggers and callbacks.

    Beyond what it inherits:

    - Graph biases have a rate of their own, ``bias_lr``, and no weight decay. Both rates follow the schedule.
    - A checkpoint holds what :meth:`GTLM.save_pretrained <pyg_textgraph.nn.GTLM.save_pretrained>` writes, adapters and
      biases but not the language model, so any of them opens with ``GTLM.from_pretrained``; resuming and
      ``load_best_model_at_end`` put both back.
    - ``compute_metrics`` gets answers, not the tokens that would follow the true answer: scores of ``class_names``
      beside ``y``, or generated tokens beside those of the answers.
    - The loss of an accumulated step is the mean over all its supervised tokens.
    - A data set's ``set_epoch`` is called before every epoch, in resumed runs and on several processes, too.

    Args:
        model: The model.
        args: Hugging Face's; ``learning_rate`` and ``weight_decay`` are the adapters'.
        bias_lr: Rate of the graph biases, commonly 20 to 200 times the adapters'; needed to train, unless
            ``optimizers`` is given.
        class_names: Evaluates by scoring these names, of which the graphs' ``y`` names one.
        max_new_tokens: Evaluates by generating; more than the longest answer has.
        data_collator: :func:`collate_graphs` by default.
        **kwargs: All other arguments of :class:`~transformers.Trainer`.

    Shapes:
        - **predictions** for ``compute_metrics``: (n, C) log-probabilities, or (n, L) token ids without the end token
        - **label_ids** (n,), or (n, A) token ids; ids are padded with −100 as Hugging Face does

    Raises:
        ValueError: If evaluation is asked for in both ways or, with ``compute_metrics``, in none, or if ``args`` asks
            for FSDP or DeepSpeed, whose shards this class does not save.

    Example:
        >>> arguments = TrainingArguments("runs/verbs", learning_rate=2e-4, lr_scheduler_type="cosine")
        >>> trainer = GTLMTrainer(model, arguments, bias_lr=2e-2, train_dataset=egos)
        >>> trainer.train(resume_from_checkpoint=True)
    """

    optimizer: Any

    def __init__(
        self,
        model: GTLM,
        args: TrainingArguments | None = None,
        *,
        bias_lr: float | None = None,
        class_names: Sequence[str] | None = None,
        max_new_tokens: int | None = None,
        data_collator: Any = collate_graphs,
        **kwargs: Any,
    ) -> None:
        if class_names is not None and max_new_tokens is not None:
            raise ValueError("GTLMTrainer: 'class_names' and 'max_new_tokens' are two ways to evaluate; give one")
        if kwargs.get("compute_metrics") is not None and class_names is None and max_new_tokens is None:
            raise ValueError(
                "GTLMTrainer: 'compute_metrics' needs answers; give 'class_names' to score them or 'max_new_tokens' to "
                "generate"
            )
        if kwargs.get("processing_class") is not None:
            raise ValueError("GTLMTrainer: 'processing_class' is the model's own 'tokenizer'; leave it out")
        self.bias_lr, self.class_names, self.max_new_tokens = bias_lr, class_names, max_new_tokens
        super().__init__(model, args, data_collator, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError("GTLMTrainer: 'args' asks for FSDP or DeepSpeed, expected one process or DDP")
        self.add_callback(_SetEpoch())
        self.model_accepts_loss_kwargs = True  # in compute_loss, which weighs by tokens

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """The optimizer that ``args.optim`` names, over two groups of parameters."""
        if self.optimizer is None:
            if self.bias_lr is None:
                raise ValueError("GTLMTrainer: 'bias_lr' is missing, expected the graph biases' learning rate")
            groups = self._gtlm.param_groups(self.args.learning_rate, self.bias_lr, self.args.weight_decay)
            kind, options = self.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer = kind(groups, **options)
        return self.optimizer

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Tensor | None:
        """The supervised tokens of all parts of a step, over all processes."""
        if not batch_samples or not all("labels" in inputs["batch"] for inputs in batch_samples):
            return None
        total = torch.stack([(inputs["batch"].labels >= 0).sum() for inputs in batch_samples]).sum().to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            total = self.accelerator.gather(total).sum()
        return total

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """A part's share of the mean loss over the supervised tokens of its step."""
        out = model(**inputs)
        # a part in which nothing is supervised adds nothing to its step
        loss = out.logits.sum() * 0.0 if out.loss is None else out.loss
        supervised = 0 if out.loss is None else out.labels.numel()
        if num_items_in_batch is not None and not int(num_items_in_batch):
            raise ValueError("GTLMTrainer: in a step nothing is supervised, expected labels in its graphs")
        if num_items_in_batch is not None:
            loss = loss * (supervised / num_items_in_batch)
            if self.args.average_tokens_across_devices:  # DDP takes the mean over processes
                loss = loss * self.accelerator.num_processes
        return (loss, out) if return_outputs else loss

    @torch.no_grad()
    def prediction_step(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Loss, answers and true answers of one batch."""
        batch = self._prepare_inputs(dict(inputs))["batch"]
        with self.compute_loss_context_manager():
            loss = self._gtlm(batch).loss if "labels" in batch else None
            if prediction_loss_only:
                return loss, None, None
            if self.class_names is not None:
                return loss, self._gtlm.classify(batch, self.class_names), batch.get("y")
            if self.max_new_tokens is not None:
                answers = self._gtlm.generate(batch, self.max_new_tokens, return_ids=True)
                truths = _padded(answer_tokens(batch)) if "labels" in batch else None
                return loss, _padded(answers), truths
        return loss, None, None

    @property
    def _gtlm(self) -> GTLM:
        return self.accelerator.unwrap_model(self.model)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        folder = Path(output_dir if output_dir is not None else self.args.output_dir)
        self._gtlm.save_pretrained(folder)
        torch.save(self.args, folder / "training_args.bin")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        storage.restore(self._gtlm, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        storage.restore(self._gtlm, Path(self.state.best_model_checkpoint))


class _SetEpoch(TrainerCallback):
    """Accelerate's loaders call a data set's ``set_epoch`` in one process and from an epoch's start only."""

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        dataset: Any = getattr(kwargs.get("train_dataloader"), "dataset", None)
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(int((state.epoch or 0) + 1e-6))  # a sum of parts of an epoch


def _padded(rows: list[Any]) -> Tensor:
    return pad_sequence(rows, batch_first=True, padding_value=IGNORED)
