"""GTLM and GraphMachineLM in Hugging Face's Trainer: rates, checkpoints, evaluation, logs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig
from torch.utils.data import Dataset, IterableDataset
from torch_geometric.data import Data
from transformers import (
    DataCollatorForLanguageModeling,
    EvalPrediction,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from pyg_textgraph.data import append_to_target
from pyg_textgraph.metrics import exact_match
from pyg_textgraph.nn import GTLM, GraphMachineConfig, GraphMachineLM
from pyg_textgraph.train import TrainConfig
from pyg_textgraph.train.checkpoint import trained_parameters
from pyg_textgraph.train.hugging_face import GTLMTrainer
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import graphs_with_answers, randomize, text_graph

NAMES = ["rain", "run", "snow"]


class Graphs(Dataset[Data]):
    """Ten graphs; the target's last token before the answer tells which of three answers it is."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.epochs: list[int] = []
        self.graphs = graphs_with_answers(tokenizer, NAMES, 10)

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> Data:
        return self.graphs[index]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> str:
    """A language model with tied embeddings, as small ones have, which safetensors refuses in a whole state dict."""
    folder = tmp_path_factory.mktemp("base")
    tiny("llama", vocab_size=400, tie_word_embeddings=True).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def graphs(tokenizer: PreTrainedTokenizerFast) -> Graphs:
    return Graphs(tokenizer)


def make(base: str, dropout: float = 0.3) -> GTLM:
    torch.manual_seed(0)
    model = GTLM.from_pretrained(base, lora=LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout))
    randomize(model, 0.1)
    return model


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "num_train_epochs": 3, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3, "weight_decay": 0.1, "logging_steps": 1, "save_strategy": "steps", "save_steps": 1,
        "report_to": [], "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    return TrainingArguments(str(folder), **settings | changes)


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


class Rates(TrainerCallback):
    """The rate of every group at every step."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seen.append([group["lr"] for group in kwargs["optimizer"].param_groups])


def losses(trainer: Trainer) -> list[float]:
    return [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]


def test_a_resumed_run_is_the_unbroken_run(base: str, graphs: Graphs, tmp_path: Path) -> None:
    whole = GTLMTrainer(make(base), arguments(tmp_path / "whole"), bias_lr=0.02, train_dataset=graphs)
    whole.train()
    assert graphs.epochs[0] == 0
    assert sorted(set(graphs.epochs)) == [0, 1, 2]
    assert losses(whole)[-1] < losses(whole)[0]
    for stop in (2, 3):  # in the middle of an epoch, and at its end
        folder = tmp_path / str(stop)
        GTLMTrainer(make(base), arguments(folder), bias_lr=0.02, train_dataset=graphs, callbacks=[StopAt(stop)]).train()
        graphs.epochs.clear()
        resumed = GTLMTrainer(make(base), arguments(folder), bias_lr=0.02, train_dataset=graphs)
        resumed.train(resume_from_checkpoint=True)
        assert losses(resumed) == losses(whole)
        assert set(graphs.epochs) == {0, 1, 2} if stop == 2 else {1, 2}
        expected = trained_parameters(whole.model)
        for name, value in trained_parameters(resumed.model).items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def test_a_checkpoint_holds_what_was_trained_and_opens_by_itself(base: str, graphs: Graphs, tmp_path: Path) -> None:
    trainer = GTLMTrainer(
        make(base), arguments(tmp_path, max_steps=2, save_steps=2), bias_lr=0.02, train_dataset=graphs
    )
    trainer.train()
    folder = tmp_path / "checkpoint-2"
    assert not any(path.name in ("model.safetensors", "base") for path in folder.rglob("*"))
    loaded = GTLM.from_pretrained(folder, trainable=True)
    expected = trained_parameters(trainer.model)
    for name, value in trained_parameters(loaded).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
    other = GTLM.from_pretrained(base, lora=LoraConfig(r=2))
    with pytest.raises(ValueError, match=r"adapter holds .*lora_A.* of shape \(4, 32\), expected \(2, 32\)"):
        GTLMTrainer(other, arguments(tmp_path), bias_lr=0.02, train_dataset=graphs).train(str(folder))
    without = GTLM.from_pretrained(base)
    with pytest.raises(ValueError, match="one has adapters and the other has none"):
        GTLMTrainer(without, arguments(tmp_path), bias_lr=0.02, train_dataset=graphs).train(str(folder))


def test_accumulation_weighs_by_tokens(base: str, tmp_path: Path) -> None:
    answers = [3, 17, 5, 11]
    data = [append_to_target(text_graph(4, i), torch.arange(3, 3 + n), n) for i, n in enumerate(answers)]
    found = []
    for size, parts in ((4, 1), (1, 4)):
        model = make(base, dropout=0.0)
        changes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": parts, "num_train_epochs": 1}
        trainer = GTLMTrainer(
            model, arguments(tmp_path / str(size), save_strategy="no", max_grad_norm=0.0, optim="sgd", **changes),
            bias_lr=0.1, train_dataset=data,
        )  # fmt: skip
        trainer.train()
        found.append([torch.tensor(losses(trainer)), *(p.detach().clone() for p in model.graph_bias.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=2e-4)


def test_a_stream_that_ends_early(base: str, graphs: Graphs, tmp_path: Path) -> None:
    class Stream(IterableDataset[Data]):
        def __iter__(self) -> Iterator[Data]:
            yield from graphs.graphs[:4]

    settings = {"max_steps": 6, "accelerator_config": {"dispatch_batches": False}, "save_strategy": "no"}
    trainer = GTLMTrainer(make(base), arguments(tmp_path, **settings), bias_lr=0.1, train_dataset=Stream())
    trainer.train()
    assert trainer.state.global_step == 6


def test_biases_keep_their_rate_and_have_no_decay(base: str, graphs: Graphs, tmp_path: Path) -> None:
    """The schedule is our own loop's: warm-up, then a cosine to a tenth."""
    rates, model = Rates(), make(base)
    trainer = GTLMTrainer(
        model,
        arguments(
            tmp_path, max_steps=10, warmup_steps=2, save_strategy="no", lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr_rate": 0.1}, optim="adamw_torch",
        ),
        bias_lr=0.2, train_dataset=graphs, callbacks=[rates],
    )  # fmt: skip
    trainer.train()
    adapters, biases = trainer.optimizer.param_groups
    assert {id(p) for p in biases["params"]} == {id(p) for p in model.graph_bias.parameters()}
    assert (adapters["weight_decay"], biases["weight_decay"]) == (0.1, 0.0)
    ours = [TrainConfig(warmup=0.2, final_lr=0.1).rate(step, 10) for step in range(2, 10)]
    assert [row[0] for row in rates.seen[2:]] == pytest.approx([1e-3 * rate for rate in ours])
    assert [row[1] for row in rates.seen] == pytest.approx([200 * row[0] for row in rates.seen])
    with pytest.raises(ValueError, match="'bias_lr' is missing"):
        GTLMTrainer(make(base), arguments(tmp_path, save_strategy="no"), train_dataset=graphs).train()


def test_an_optimizer_of_ones_own(base: str, graphs: Graphs, tmp_path: Path) -> None:
    model = make(base)
    optimizer = torch.optim.AdamW(model.param_groups(lr=1e-3, bias_lr=0.02))
    trainer = GTLMTrainer(model, arguments(tmp_path, max_steps=1), train_dataset=graphs, optimizers=(optimizer, None))
    trainer.train()
    assert len(trainer.optimizer.param_groups) == 2


def accuracy(found: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


def test_evaluates_by_scoring_names_and_keeps_the_best(base: str, graphs: Graphs, tmp_path: Path) -> None:
    settings = arguments(
        tmp_path, max_steps=12, eval_strategy="steps", eval_steps=4, save_steps=4, load_best_model_at_end=True,
        metric_for_best_model="accuracy", learning_rate=2e-2, per_device_eval_batch_size=4,
    )  # fmt: skip
    model = make(base, dropout=0.0)
    trainer = GTLMTrainer(
        model, settings, bias_lr=0.02, class_names=NAMES, train_dataset=graphs, eval_dataset=graphs,
        compute_metrics=accuracy,
    )  # fmt: skip
    before = trainer.evaluate()
    trainer.train()
    history = [row["eval_accuracy"] for row in trainer.state.log_history if "eval_accuracy" in row]
    assert len(history) == 3
    assert max(history) > before["eval_accuracy"]
    best = trainer.state.best_model_checkpoint
    assert best == str(tmp_path / f"checkpoint-{4 * (history.index(max(history)) + 1)}")
    expected = trained_parameters(GTLM.from_pretrained(best, trainable=True))
    for name, value in trained_parameters(model).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
    after = trainer.evaluate()
    assert after["eval_accuracy"] == max(history)
    # the loss of four, four and two graphs, weighed by how many they are
    with torch.no_grad():
        parts = [(n, float(model(trainer.data_collator(graphs.graphs[a : a + n])["batch"]).loss)) for a, n in
                 ((0, 4), (4, 4), (8, 2))]  # fmt: skip
    assert after["eval_loss"] == pytest.approx(sum(n * loss for n, loss in parts) / 10, rel=1e-5)
    found = trainer.predict(graphs)
    assert found.predictions.shape == (10, 3)
    assert found.label_ids.tolist() == [i % 3 for i in range(10)]


def test_evaluates_by_generating(base: str, graphs: Graphs, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    def texts(ids: np.ndarray) -> list[str]:
        return [tokenizer.decode(row[row >= 0]).strip() for row in ids]

    def match(found: EvalPrediction) -> dict[str, float]:
        assert texts(found.label_ids) == [NAMES[i % 3] for i in range(10)]
        return {"match": exact_match(texts(found.predictions), texts(found.label_ids))}

    model = make(base, dropout=0.0)
    settings = arguments(tmp_path, max_steps=60, learning_rate=1e-2, save_strategy="no", logging_steps=20)
    trainer = GTLMTrainer(
        model, settings, bias_lr=0.02, max_new_tokens=8, train_dataset=graphs, eval_dataset=graphs,
        compute_metrics=match,
    )  # fmt: skip
    before = trainer.evaluate()["eval_match"]
    trainer.train()
    after = trainer.evaluate()["eval_match"]
    assert before == 0
    assert after > 0.5
    written = model.generate(trainer.data_collator(graphs.graphs)["batch"], 8)
    assert after == pytest.approx(np.mean([a.strip() == NAMES[i % 3] for i, a in enumerate(written)]))


def test_without_metrics_there_is_the_loss(base: str, graphs: Graphs, tmp_path: Path) -> None:
    trainer = GTLMTrainer(make(base), arguments(tmp_path), eval_dataset=graphs)
    assert trainer.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compute_metrics": accuracy}, "'compute_metrics' needs answers"),
        ({"class_names": NAMES, "max_new_tokens": 3}, "two ways to evaluate"),
        ({"processing_class": "a tokenizer"}, "'processing_class' is the model's own"),
    ],
)
def test_bad_arguments(base: str, tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GTLMTrainer(make(base), arguments(tmp_path), **given)


def test_gradient_checkpointing_and_tensorboard(base: str, graphs: Graphs, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves: list[list[float]] = []
    runs: list[str] = []
    for name, changes in (("kept", {}), ("again", {"gradient_checkpointing": True, "report_to": ["tensorboard"]})):
        settings = arguments(tmp_path / name, max_steps=3, save_strategy="no", **changes)
        trainer = GTLMTrainer(make(base, dropout=0.0), settings, bias_lr=0.02, train_dataset=graphs)
        layer = trainer.model.base_model.get_base_model().model.layers[1].mlp
        layer.register_forward_pre_hook(lambda *_, name=name: runs.append(name))
        trainer.train()
        curves.append(losses(trainer))
    assert runs.count("again") == 2 * runs.count("kept")  # once more in backward
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
    (folder,) = (path.parent for path in (tmp_path / "again").rglob("events.out.tfevents.*"))
    events = EventAccumulator(str(folder)).Reload()
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(curves[1], abs=1e-3)


class TestGraphMachine:
    """An ordinary Hugging Face model, so the plain Trainer and its collator."""

    @staticmethod
    def trainer(folder: Path, tokenizer: PreTrainedTokenizerFast, *callbacks: Any, **changes: Any) -> Trainer:
        torch.manual_seed(0)
        config = GraphMachineConfig(
            vocab_size=400, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_sparse_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_edges=4, num_referrals=1, input_refresh=2,
            budgets=(2, 2, 2, 2), eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        texts = ["run, walk: move along on foot", "rain: fall from clouds", "walk: run", "snow, rain: fall", "A: body"]
        data = [{"input_ids": [0, *tokenizer(text)["input_ids"], 1]} for text in texts]
        settings = arguments(folder, learning_rate=1e-2, **changes)
        return Trainer(
            GraphMachineLM(config), settings, DataCollatorForLanguageModeling(tokenizer, mlm=False), data, data[:3],
            callbacks=list(callbacks),
        )  # fmt: skip

    def test_trains_resumes_evaluates_and_generates(self, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
        changes = {"num_train_epochs": 4, "eval_strategy": "epoch"}
        whole = self.trainer(tmp_path / "whole", tokenizer, **changes)
        before = whole.evaluate()["eval_loss"]
        whole.train()
        evaluated = [row["eval_loss"] for row in whole.state.log_history if "eval_loss" in row]
        assert evaluated[-1] < before - 0.2
        self.trainer(tmp_path / "broken", tokenizer, StopAt(3), **changes).train()
        resumed = self.trainer(tmp_path / "broken", tokenizer, **changes)
        resumed.train(resume_from_checkpoint=True)
        assert losses(resumed) == losses(whole)
        expected = whole.model.state_dict()
        for name, value in resumed.model.state_dict().items():
            assert torch.equal(value, expected[name])
        prompt = torch.tensor([[0, *tokenizer("rain:")["input_ids"]]])
        loaded = GraphMachineLM.from_pretrained(tmp_path / "whole" / f"checkpoint-{whole.state.global_step}")
        written = [model.eval().generate(prompt, max_new_tokens=5, do_sample=False) for model in (whole.model, loaded)]
        assert torch.equal(*written)
        assert written[0].size(1) > prompt.size(1)

    def test_gradient_checkpointing_changes_nothing(self, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
        curves = []
        for again in (False, True):
            changes = {"gradient_checkpointing": again, "max_steps": 3, "save_strategy": "no"}
            trainer = self.trainer(tmp_path / str(again), tokenizer, **changes)
            calls = []
            trainer.model.model.layers[1].register_forward_pre_hook(lambda *_, calls=calls: calls.append(None))
            trainer.train()
            curves.append((losses(trainer), len(calls)))
        assert curves[1][0] == pytest.approx(curves[0][0], rel=1e-5)
        assert curves[1][1] == 2 * curves[0][1]  # computed again in backward


def test_a_part_without_labels_adds_nothing(base: str, tmp_path: Path) -> None:
    some = append_to_target(text_graph(4, 0), torch.arange(3, 8), 5)
    none = append_to_target(text_graph(4, 1), torch.arange(3, 8))

    def loss(size: int, data: list[Data]) -> float:
        changes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 2 // size, "max_steps": 1}
        settings = arguments(tmp_path, save_strategy="no", **changes)
        trainer = GTLMTrainer(make(base, dropout=0.0), settings, bias_lr=0.1, train_dataset=data)
        trainer.train()
        return losses(trainer)[0]

    for graph in (some, none):
        graph.labels = graph.labels if "labels" in graph else torch.full_like(graph.input_ids, -100)
    assert loss(1, [some, none]) == pytest.approx(loss(2, [some, none]), rel=1e-4)
    with pytest.raises(ValueError, match="in a step nothing is supervised"):
        loss(2, [none, none])
