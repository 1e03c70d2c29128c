"""GTLM and GraphMachineLM in Lightning do what they do in our own loop."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.transforms as T
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from peft import LoraConfig
from torch.utils.data import DataLoader as PlainLoader
from torch_geometric.data import Data, Dataset
from torch_geometric.data.lightning import LightningDataset, LightningNodeData
from torch_geometric.loader import DataLoader
from torchmetrics import MetricCollection
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from pyg_textgraph import train
from pyg_textgraph.datasets import WordNetVerbs
from pyg_textgraph.metrics import exact_match, macro_f1
from pyg_textgraph.metrics.torchmetrics import TextExactMatch, TextMacroF1
from pyg_textgraph.nn import GTLM, GraphMachineConfig, GraphMachineLM
from pyg_textgraph.train import TrainConfig, class_scores, written_answers
from pyg_textgraph.train.checkpoint import trained_parameters
from pyg_textgraph.train.lightning import LightningGTLM, LightningLM
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import graphs_with_answers, randomize

NAMES = ["rain", "run", "snow"]


class Graphs(Dataset):
    """Nine graphs with one of three answers, as a PyG data set."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.graphs = graphs_with_answers(tokenizer, NAMES, 9)

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def len(self) -> int:
        return len(self.graphs)

    def get(self, index: int) -> Data:
        return self.graphs[index]


@pytest.fixture
def graphs(tokenizer: PreTrainedTokenizerFast) -> Graphs:
    return Graphs(tokenizer)


def make(tokenizer: PreTrainedTokenizerFast, rank: int = 4) -> GTLM:
    torch.manual_seed(0)
    base = tiny("llama", vocab_size=400, max_position_embeddings=256)
    model = GTLM(base, tokenizer, LoraConfig(r=rank, lora_alpha=8, lora_dropout=0.0))
    randomize(model, 0.1)
    return model


def trainer(folder: Path, **changes: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    return Trainer(default_root_dir=str(folder), **quiet | {"enable_checkpointing": False} | changes)


class Losses(Callback):
    """Losses and rates of every step; all of the model is in training mode meanwhile."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rates: list[list[float]] = []

    def on_train_batch_start(self, run: Any, module: Any, batch: Any, index: int) -> None:
        assert all(part.training for part in module.model.modules())

    def on_before_optimizer_step(self, run: Any, module: Any, optimizer: Any) -> None:
        self.rates.append([group["lr"] for group in optimizer.param_groups])

    def on_train_batch_end(self, run: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.losses.append(float(outputs["loss"]))


class StopAfter(Callback):
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_epoch_end(self, run: Any, module: Any) -> None:
        run.should_stop = run.current_epoch + 1 >= self.epochs


def test_the_same_losses_as_our_own_loop(graphs: Graphs, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    config = TrainConfig(epochs=2, batch_size=2, seed=5)
    model = make(tokenizer)
    optimizer = torch.optim.AdamW(model.param_groups(2e-3, 0.02))
    expected = train.Trainer(model, graphs, optimizer, config, tmp_path / "ours").run()
    # the order of our loop's epochs
    order = [torch.randperm(9, generator=torch.Generator().manual_seed(5 * 1_000_003 + epoch)) for epoch in range(2)]
    sampler = type("Order", (), {"__iter__": lambda s: iter(order.pop(0).tolist()), "__len__": lambda s: 9})()
    module, seen = LightningGTLM(make(tokenizer), lr=2e-3, bias_lr=0.02), Losses()
    graphs.epochs.clear()
    loader = DataLoader(graphs, batch_size=2, sampler=sampler)
    trainer(tmp_path, max_epochs=2, gradient_clip_val=1.0, callbacks=[seen]).fit(module, loader)
    assert seen.losses == pytest.approx([row["loss"] for row in expected], rel=1e-5)
    assert seen.rates == [pytest.approx([2e-3 * row["rate"], 0.02 * row["rate"]]) for row in expected]
    assert graphs.epochs == [0, 0, 1]  # at the start of training, too
    for a, b in zip(module.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_validation_scores_and_written_answers(
    graphs: Graphs, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model, truths = make(tokenizer), [i % 3 for i in range(9)]
    data = LightningDataset(graphs, graphs, graphs, batch_size=4)
    run = trainer(tmp_path, max_epochs=12, check_val_every_n_epoch=12)
    run.fit(LightningGTLM(model, 2e-2, 0.02, class_names=NAMES), data)
    answers = class_scores(model, graphs, NAMES).argmax(-1).tolist()
    right = sum(a == t for a, t in zip(answers, truths, strict=True)) / 9
    assert float(run.callback_metrics["val_accuracy"]) == pytest.approx(right)
    assert float(run.callback_metrics["val_macro_f1"]) == pytest.approx(macro_f1(answers, truths, range(3)))
    (tested,) = run.test(LightningGTLM(model, 2e-2, 0.02, max_new_tokens=8), data, verbose=False)
    written = [a for batch in DataLoader(graphs, batch_size=4) for a in written_answers(model, batch, 8)]
    assert tested["test_exact_match"] == pytest.approx(exact_match(written, [NAMES[t] for t in truths]))
    assert tested["test_exact_match"] > 0.5
    own = MetricCollection({"match": TextExactMatch(), "f1": TextMacroF1(NAMES)})
    (tested,) = run.test(LightningGTLM(model, 2e-2, 0.02, max_new_tokens=8, metrics=own), data, verbose=False)
    assert tested["test_match"] == pytest.approx(exact_match(written, [NAMES[t] for t in truths]))
    assert set(tested) == {"test_loss", "test_match", "test_f1"}
    # one token is no answer that came to an end
    assert written_answers(model, next(iter(DataLoader(graphs, batch_size=9))), 1) == [None] * 9


def test_checkpoints_hold_what_trains_and_resume(
    graphs: Graphs, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    def fit(epochs: int, path: str | None = None) -> tuple[Trainer, LightningGTLM, Losses]:
        module, seen = LightningGTLM(make(tokenizer), lr=2e-3, bias_lr=0.02), Losses()
        run = trainer(tmp_path, max_epochs=3, callbacks=[seen, StopAfter(epochs)])
        run.fit(module, DataLoader(graphs, batch_size=3), ckpt_path=path)
        return run, module, seen

    _, whole, expected = fit(3)
    run, _, first = fit(1)
    path = str(tmp_path / "a.ckpt")
    run.save_checkpoint(path)
    _, resumed, rest = fit(3, path)
    assert first.losses + rest.losses == pytest.approx(expected.losses)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)

    saved = torch.load(path, weights_only=True)["state_dict"]
    assert saved.keys() == {f"model.{name}" for name in trained_parameters(make(tokenizer))}
    loaded = LightningGTLM.load_from_checkpoint(path, model=make(tokenizer))
    assert (loaded.lr, loaded.bias_lr) == (2e-3, 0.02)
    for name, value in trained_parameters(loaded.model).items():
        assert torch.equal(value, saved[f"model.{name}"])
    with pytest.raises(ValueError, match="the checkpoint is of another model"):
        LightningGTLM.load_from_checkpoint(path, model=make(tokenizer, rank=2))


def test_nodes_of_a_big_graph_in_pygs_data_module(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    verbs, epochs = WordNetVerbs()[0], []
    seeds = verbs.train_mask.nonzero().view(-1)[:6]
    egos = EgoTextSampler(num_neighbors=4, num_hops=1).dataset(
        verbs, seeds, tokenizer=tokenizer, question="Which class?", max_target_tokens=20, max_neighbor_tokens=6,
        transform=T.Compose([AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)]),
    )  # fmt: skip
    set_epoch = egos.sampler.set_epoch
    egos.sampler.set_epoch = lambda epoch: (epochs.append(epoch), set_epoch(epoch))
    data = LightningNodeData(
        verbs, input_train_nodes=seeds, input_val_nodes=seeds[:2], node_sampler=egos.sampler, loader="custom",
        transform=egos.to_graphs, batch_size=3,
    )  # fmt: skip
    seen = Losses()
    run = trainer(tmp_path, max_epochs=2, callbacks=[seen])
    run.fit(LightningGTLM(make(tokenizer), 1e-2, 0.02, class_names=verbs.class_names[:3]), data)
    assert len(seen.losses) == 4
    assert seen.losses[-1] < seen.losses[0]
    assert epochs == [0, 0, 1]
    assert 0 <= float(run.callback_metrics["val_accuracy"]) <= 1


def test_tensorboard(graphs: Graphs, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger, seen = TensorBoardLogger(str(tmp_path)), Losses()
    callbacks = [LearningRateMonitor(), seen]
    run = trainer(tmp_path, max_steps=3, logger=logger, log_every_n_steps=1, callbacks=callbacks)
    run.fit(LightningGTLM(make(tokenizer), 1e-3, 0.02), DataLoader(graphs, batch_size=3))
    events = EventAccumulator(logger.log_dir).Reload()
    assert [event.value for event in events.Scalars("train_loss")] == pytest.approx(seen.losses)
    assert [event.value for event in events.Scalars("lr-AdamW/graph_bias")] == pytest.approx([r[1] for r in seen.rates])


def test_graph_machine(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GraphMachineConfig(
        vocab_size=400, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_sparse_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_edges=4, num_referrals=1, input_refresh=2,
        budgets=(2, 2, 2, 2), eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    data = [{"input_ids": [0, *tokenizer(text)["input_ids"], 1]} for text in ("run, walk: move", "rain: fall", "snow")]
    loader = PlainLoader(data, batch_size=2, collate_fn=DataCollatorForLanguageModeling(tokenizer, mlm=False))  # type: ignore[arg-type]
    module, seen = LightningLM(GraphMachineLM(config), lr=1e-2), Losses()
    run = trainer(tmp_path, max_epochs=10, gradient_clip_val=1.0, callbacks=[seen])
    run.fit(module, loader, loader)
    assert seen.losses[-2] < seen.losses[0] - 0.3
    assert float(run.callback_metrics["val_loss"]) < seen.losses[0] - 0.3
    run.save_checkpoint(tmp_path / "lm.ckpt")
    loaded = LightningLM.load_from_checkpoint(tmp_path / "lm.ckpt", model=GraphMachineLM(config))
    for a, b in zip(loaded.model.parameters(), module.model.parameters(), strict=True):
        assert torch.equal(a, b)
    decays = {p.dim() > 1: group["weight_decay"] for group in module.param_groups() for p in group["params"]}
    assert decays == {True: 0.1, False: 0.0}


def test_bad_arguments(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="two ways to evaluate"):
        LightningGTLM(make(tokenizer), 1e-3, 0.02, class_names=NAMES, max_new_tokens=3)
    with pytest.raises(ValueError, match="'metrics' need answers"):
        LightningGTLM(make(tokenizer), 1e-3, 0.02, metrics=MetricCollection({"match": TextExactMatch()}))
    with pytest.raises(ValueError, match="'warmup' is 2"):
        LightningGTLM(make(tokenizer), 1e-3, 0.02, warmup=2)


@pytest.mark.parametrize("missing", [["lightning.pytorch", "pytorch_lightning"], ["torchmetrics"]])
def test_without_lightning_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    monkeypatch.delitem(sys.modules, "pyg_textgraph.train.lightning")
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'pyg-textgraph\[lightning\]'"):
        importlib.import_module("pyg_textgraph.train.lightning")
    importlib.reload(train)  # the package itself does without
