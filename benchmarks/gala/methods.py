"""What is compared: orders without GaLA, GaLA with every choice of heads, demonstrations, reasoning, fine-tuning."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.gala.tasks import Question, Questions
from pyg_textgraph.data import GraphPrompt
from pyg_textgraph.data.linearization import Order
from pyg_textgraph.nn.gala import (
    GaLA,
    HeadStrengths,
    centered,
    entropy_strengths,
    gradient_strengths,
    named_option,
    option_ids,
    option_scores,
    tune_strength,
)

STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
Answers = list[int | None]


@dataclass
class Outcome:
    """One method's answers to the test questions."""

    answers: Answers
    seconds: float  # per question, reading and answering
    raw: Answers | None = None  # answers by uncentred scores
    strength: float | None = None
    validation: dict[float, float] | None = None
    calibration_seconds: float | None = None
    named: Answers | None = None  # what chains of thought name themselves


def correct(questions: Sequence[Question], answers: Answers) -> Tensor:
    """Which questions are answered right, (n,) bool."""
    return torch.tensor([answer in q.right for q, answer in zip(questions, answers, strict=True)])


class Methods:
    """Runs methods by name on the same questions: ``majority``, ``order=…``, ``heads=…``, ``demonstrations=…``,
    ``steps=…`` (chain of thought) and ``fine-tuned``."""

    def __init__(
        self,
        load: Callable[[], PreTrainedModel],
        tokenizer: PreTrainedTokenizerBase,
        questions: Questions,
        test: Sequence[Question],
        validation: Sequence[Question],
        train: Sequence[Question],
        reasoned: int,
    ) -> None:
        self.load, self.tokenizer, self.questions = load, tokenizer, questions
        self.test, self.validation, self.train, self.reasoned = test, validation, train, reasoned

    @cached_property
    def model(self) -> PreTrainedModel:
        return self.load().eval()

    def run(self, name: str) -> Outcome:
        kind, _, value = name.partition("=")
        if kind == "majority":
            commonest = Counter(min(q.right) for q in self.validation).most_common(1)[0][0]
            return Outcome([commonest] * len(self.test), 0.0)
        if kind == "order":
            return self.scored(self.model, self.prompts(self.test, cast("Order", value)))
        if kind == "heads":
            return self.aligned(value)
        if kind == "demonstrations":
            shown = self.train[: int(value)]
            return self.scored(self.model, [self.questions.prompt(q, "bfs", shown=shown) for q in self.test])
        if kind == "steps":
            return self.reasoning(int(value))
        if kind == "fine-tuned":
            return self.scored(self.tuned, self.prompts(self.test, "bfs"))
        raise SystemExit(f"gala: unknown method {name!r}")

    def prompts(self, questions: Sequence[Question], order: Order = "bfs") -> list[GraphPrompt]:
        return [self.questions.prompt(question, order) for question in questions]

    def scored(self, reader: GaLA | PreTrainedModel, prompts: Sequence[GraphPrompt]) -> Outcome:
        start = time.perf_counter()
        scores = option_scores(reader, prompts, self.questions.answers, progress="scoring")
        seconds = (time.perf_counter() - start) / len(prompts)
        return Outcome(centered(scores).argmax(-1).tolist(), seconds, scores.argmax(-1).tolist())

    def aligned(self, heads: str) -> Outcome:
        """GaLA on breadth-first prompts; β tuned, heads calibrated on the validation questions."""
        prompts, gala = self.prompts(self.validation), GaLA(self.model)
        start = time.perf_counter()
        if heads == "random":
            gala.heads = HeadStrengths.random(*gala.heads.values.shape)
        elif heads == "entropy":
            gala.heads = entropy_strengths(self.model, prompts, progress=True)
        elif heads == "gradient":
            answers = [self.questions.answer(question) for question in self.validation]
            gala.heads = gradient_strengths(gala, prompts, answers, progress=True)
        calibration = time.perf_counter() - start

        def quality(gala: GaLA) -> float:
            return float(correct(self.validation, self.scored(gala, prompts).answers).float().mean())

        validation = tune_strength(gala, quality, STRENGTHS)
        outcome = self.scored(gala, self.prompts(self.test))
        outcome.strength, outcome.validation, outcome.calibration_seconds = gala.strength, validation, calibration
        return outcome

    def reasoning(self, new_tokens: int) -> Outcome:
        """Labels are scored as for all methods, but after what the model has thought up."""
        chains: list[GraphPrompt] = []
        named: Answers = []
        start = time.perf_counter()
        for question in tqdm(self.test[: self.reasoned], "reasoning", leave=False):
            prompt = self.questions.prompt(question, "bfs", steps=True)
            ids = prompt.input_ids[None].to(self.model.device)
            out = self.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False
            )
            text = self.tokenizer.decode(out[0, ids.size(1) :], skip_special_tokens=True)
            thought, told, answer = text.partition("Answer:")
            named.append(named_option(answer, self.questions.options) if told else None)
            more = self.tokenizer(f"{thought.rstrip()}\nAnswer:", add_special_tokens=False)["input_ids"]
            input_ids = torch.cat([prompt.input_ids, torch.tensor(more)])
            node = torch.cat([prompt.node, prompt.node.new_full((len(more),), -1)])
            chains.append(replace(prompt, input_ids=input_ids, node=node))
        answers = option_ids(self.tokenizer, self.questions.options, " ")
        scores = option_scores(self.model, chains, answers, progress="scoring")
        seconds = (time.perf_counter() - start) / len(chains)
        return Outcome(centered(scores).argmax(-1).tolist(), seconds, scores.argmax(-1).tolist(), named=named)

    @cached_property
    def tuned(self) -> PreTrainedModel:
        """The model after one pass of LoRA training over the training questions, without GaLA."""
        torch.manual_seed(0)
        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(self.load(), lora)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=2e-4, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, len(self.train) // 8))
        model.train()
        pairs = [(q, prompt) for q, prompt in zip(self.train, self.prompts(self.train), strict=True)]
        for step, (question, prompt) in enumerate(tqdm(pairs, "fine-tuning", leave=False), start=1):
            answer = self.questions.answer(question).to(model.device)
            ids = torch.cat([prompt.input_ids.to(model.device), answer[:-1]])[None]
            with torch.autocast(model.device.type, torch.bfloat16):
                logits = model(input_ids=ids, use_cache=False, logits_to_keep=answer.numel()).logits[0]
            (torch.nn.functional.cross_entropy(logits.float(), answer) / 8).backward()
            if step % 8 == 0:
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        out: PreTrainedModel = model.get_base_model().eval()
        return out
