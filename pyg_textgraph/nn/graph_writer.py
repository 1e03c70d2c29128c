"""A GTLM that writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import torch
from torch_geometric.data import Batch, Data

from pyg_textgraph.data.graph_actions import Action, Stop, checked_graph
from pyg_textgraph.data.text_attributed_data import TextAttributedData
from pyg_textgraph.nn.models.gtlm import GTLM
from pyg_textgraph.nn.models.text_graph_lm.vocabulary import num_embeddings
from pyg_textgraph.transforms.tokenize_action import TokenizeAction


@dataclass
class WrittenGraph:
    """What a :class:`GraphWriter` made of a graph.

    Args:
        graph: The graph with the new nodes and edges after the old ones.
        actions: What was done, the stop included.
        log_probs: Of each action among all that the grammar allows there.
        finished: Whether the writer stopped by itself.
    """

    graph: TextAttributedData
    actions: list[Action] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finished: bool = False


class GraphWriter:
    """Lets a GTLM write nodes and edges into text graphs, one action at a time.

    Before every action the model reads the graph as it then is, structural features included. Tokens that the grammar
    does not allow get no probability, so every graph that is written is valid, whatever the model's weights.

    Args:
        model: The model; its tokenizer must be the one of **prompt**.
        prompt: How a graph is read, and the tokens of actions. Trained on :class:`~pyg_textgraph.datasets.ActionSteps`
            with the same prompt, the model has seen exactly such inputs.

    Raises:
        ValueError: If the model has no embeddings for some tokens.

    Example:
        >>> grammar = GraphGrammar(relations=("CHILD", "SPOUSE"), symmetric={"SPOUSE"}, add_nodes=False)
        >>> prompt = TokenizeAction(ActionTokens(model.tokenizer, grammar), transform=AddSPD(8))
        >>> [written] = GraphWriter(model, prompt).write([data], max_actions=2)
    """

    def __init__(self, model: GTLM, prompt: TokenizeAction) -> None:
        self.model, self.prompt = model, prompt
        tokens, rows = prompt.actions, num_embeddings(model.base_model)
        most = max(int(tokens.text_ids[-1]), tokens.end, *tokens.add_node, *tokens.add_edge, *tokens.stop)
        if most >= rows:
            raise ValueError(
                f"GraphWriter: the tokenizer has token {most} but the language model has embeddings for {rows}; add "
                "tokens by GTLM(..., new_tokens=...)"
            )

    def write(
        self,
        graphs: Sequence[Data],
        max_actions: int = 8,
        *,
        do_sample: bool = False,
        temperature: float = 1.0,
    ) -> list[WrittenGraph]:
        """Writes into several graphs at a time.

        Args:
            graphs: Text graphs without tokens or features, read as **prompt** says.
            max_actions: How many actions each gets at most, the stop included.
            do_sample: Whether to draw tokens instead of taking the likeliest.
            temperature: Divides the logits when drawing.

        Returns:
            One result per graph; the given graphs stay as they are.
        """
        if max_actions < 1:
            raise ValueError(f"GraphWriter: 'max_actions' is {max_actions}, expected at least 1")
        out = []
        for graph in graphs:
            state = checked_graph(graph, begins=True)
            for key in ("action", "actions"):
                if key in state:
                    del state[key]
            out.append(WrittenGraph(state))
        for _ in range(max_actions):
            going = [written for written in out if not written.finished]
            if not going:
                break
            following = self.next_actions([x.graph for x in going], do_sample=do_sample, temperature=temperature)
            for written, (action, log_prob) in zip(going, following, strict=True):
                written.graph = self.prompt.actions.grammar.apply(written.graph, action)
                written.actions.append(action)
                written.log_probs.append(log_prob)
                written.finished = isinstance(action, Stop)
        return out

    @torch.no_grad()
    def next_actions(
        self, graphs: Sequence[Data], *, do_sample: bool = False, temperature: float = 1.0
    ) -> list[tuple[Action, float]]:
        """One action for every graph, and its log-probability among those that the grammar allows.

        Raises:
            ValueError: If the model's logits are not numbers.
        """
        if not 0 < temperature < torch.inf:
            raise ValueError(f"GraphWriter: 'temperature' is {temperature}, expected a positive number")
        if not graphs:
            return []
        parsers = [self.prompt.actions.parser(graph) for graph in graphs]
        log_probs = torch.zeros(len(graphs), device=self.model.device)
        batch = Batch.from_data_list([self.prompt(graph) for graph in graphs]).to(self.model.device)
        with closing(self.model.decode_steps(batch)) as steps:
            logits = next(steps)
            while True:
                log_p = torch.full_like(logits, -torch.inf, dtype=torch.float32)  # [B, V]
                for row, parser in enumerate(parsers):
                    ids = parser.allowed() if parser.action is None else torch.tensor([self.prompt.actions.end])
                    ids = ids.to(logits.device)
                    log_p[row, ids] = logits[row, ids].float()
                log_p = log_p.log_softmax(-1)
                if bool(log_p.isnan().any()):
                    raise ValueError("GraphWriter: the model's logits are not finite")
                new = log_p.argmax(-1)
                if do_sample:
                    scaled = (log_p - log_p.amax(-1, keepdim=True)) / temperature
                    new = torch.multinomial(scaled.softmax(-1), 1)[:, 0]
                log_probs += log_p.gather(1, new[:, None])[:, 0]
                for parser, token in zip(parsers, new.tolist(), strict=True):
                    if parser.action is None:
                        parser.push(token)
                actions = [parser.action for parser in parsers if parser.action is not None]
                if len(actions) == len(parsers):
                    return list(zip(actions, log_probs.tolist(), strict=True))
                done = torch.tensor([parser.action is not None for parser in parsers], device=new.device)
                logits = steps.send(new.masked_fill(done, -1))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.prompt!r})"
