"""Family trees with a part that is missing and determined by the rest, and the models that are to write it."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch import Tensor
from torch_geometric.data import Data
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

from pyg_textgraph.data import (
    CONTROL_TOKENS,
    Action,
    ActionTokens,
    AddEdge,
    GraphGrammar,
    Stop,
    TextAttributedData,
    action_steps,
)
from pyg_textgraph.datasets import FamilyTree
from pyg_textgraph.datasets.family_tree import CHILD, SPOUSE
from pyg_textgraph.nn import GTLM, WrittenGraph
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.transforms import (
    AddMagneticLaplacian,
    AddRRWP,
    AddSPD,
    HideEdges,
    HideNode,
    SerializeGraph,
    TokenizeAction,
)

Task = Literal["edge", "node"]
Method = Literal["gtlm", "serialized"]
PARTNER, MARRIAGE = "PARTNER", "marriage of "
GRAMMARS: dict[Task, GraphGrammar] = {
    "edge": GraphGrammar(relations=(CHILD, SPOUSE), symmetric=frozenset({SPOUSE}), add_nodes=False),
    "node": GraphGrammar(relations=(PARTNER,), max_text_tokens=64),
}
INSTRUCTIONS: dict[Task, str] = {
    "edge": "Add the edge to {} that is missing, if one is.",
    "node": "Add the marriage of {} that is missing, if one is.",
}


def name_of(text: str) -> str:
    """What a person is called; a marriage by its whole text."""
    return text.split(",")[0]


def episodes(task: Task, split: Any, sizes: tuple[int, int, int], seed: int) -> list[TextAttributedData]:
    """Families, each with what is hidden in ``actions``."""
    trees = FamilyTree(split, form="plain", sizes=sizes, seed=seed)
    return [(hide_edge if task == "edge" else hide_marriage)(plain(tree), seed) for tree in trees]


def plain(tree: Data) -> TextAttributedData:
    """People with name and gender, and who is whose spouse and child."""
    text = [", ".join(about.split(", ")[:2]) for about in tree.text]
    return TextAttributedData(text=text, edge_index=tree.edge_index, text_edges=tree.text_edges)


def hide_edge(tree: TextAttributedData, seed: int) -> TextAttributedData:
    """Hides one edge; the person that it leads to is mentioned."""
    out = HideEdges(GRAMMARS["edge"], seed=seed)(tree)
    [edge] = out.actions
    return mention(out, "edge", edge.target)


def hide_marriage(tree: TextAttributedData, seed: int) -> TextAttributedData:
    """Adds a node for every marriage, hides one of them, and mentions the wife."""
    edges = list(zip(tree.edge_index.T.tolist(), tree.text_edges, strict=True))
    couples = [(u, v) for (u, v), name in edges if name == SPOUSE and ", female" in tree.text[u]]
    n = len(tree.text)
    text = [MARRIAGE + " and ".join(name_of(tree.text[x]) for x in couple) for couple in couples]
    ends = [(n + i, x) for i, couple in enumerate(couples) for x in couple]
    whole = TextAttributedData(
        text=[*tree.text, *text],
        edge_index=torch.cat([tree.edge_index, torch.tensor(ends).T], 1),
        text_edges=[*tree.text_edges, *(PARTNER for _ in ends)],
    )
    hide = HideNode(GRAMMARS["node"], lambda data: torch.arange(len(data.text)) >= n, seed)
    out = hide(whole)
    return mention(out, "node", out.actions[1].target)


def mention(data: TextAttributedData, task: Task, person: int) -> TextAttributedData:
    data.mentions = [person]
    data.instruction = INSTRUCTIONS[task].format(name_of(data.text[person]))
    return data


def deduced(data: Data) -> tuple[set[tuple[str, int, int]], set[tuple[int, int]]]:
    """What is missing, by rule: edges, and couples whose marriage has no node.

    Everyone has no parents in the graph or two, who are each other's spouses, and all spouses have a child. So a child
    with one parent is the child of that parent's spouse, too; and two parents of a child are spouses.
    """
    edges = {(name, u, v) for (u, v), name in zip(data.edge_index.T.tolist(), data.text_edges, strict=True)}
    spouse = {u: v for name, u, v in edges if name == SPOUSE}
    parents: dict[int, set[int]] = {}
    for name, u, v in edges:
        if name == CHILD:
            parents.setdefault(v, set()).add(u)
    missing: set[tuple[str, int, int]] = set()
    for child, known in parents.items():
        if len(known) == 1:
            missing.add((CHILD, spouse[next(iter(known))], child))
        elif spouse.get(min(known)) != max(known):
            missing |= {(SPOUSE, min(known), max(known)), (SPOUSE, max(known), min(known))}
    partners: dict[int, set[int]] = {}
    for name, u, v in edges:
        if name == PARTNER:
            partners.setdefault(u, set()).add(v)
    there = {frozenset(pair) for pair in partners.values()}
    women = {u for u, text in enumerate(data.text) if ", female" in text}
    return missing, {(u, v) for u, v in spouse.items() if u in women and frozenset((u, v)) not in there}


def chance(episode: TextAttributedData) -> float:
    """How likely an edge drawn from all valid ones that lead to the mentioned person is the right one."""
    into: Tensor = GRAMMARS["edge"].open_edges(episode)[:, :, episode.mentions[0]]
    return 1 / int(into.sum())


def same_edge(task: Task, one: Action, other: Action) -> bool:
    if isinstance(one, AddEdge) and isinstance(other, AddEdge) and GRAMMARS[task].is_symmetric(one.relation):
        return one.relation == other.relation and {one.source, one.target} == {other.source, other.target}
    return one == other


def exact(task: Task, episode: TextAttributedData, written: WrittenGraph) -> tuple[bool, bool]:
    """Whether the first action is right, and whether the whole graph is, the stop included."""
    right = [*episode.actions, Stop()]
    same = [same_edge(task, one, other) for one, other in zip(written.actions, right, strict=False)]
    rest_in_any_order = set(written.actions[1:]) == set(right[1:]) and written.actions[-1] == Stop()
    return same[0], same[0] and rest_in_any_order


def is_valid(task: Task, before: TextAttributedData, after: Data) -> bool:
    """Whether what was written keeps to the task's rules, looked at without the grammar's own code."""
    after.validate()
    n, e = len(before.text), before.edge_index.size(1)
    new = list(zip(after.edge_index.T[e:].tolist(), after.text_edges[e:], strict=True))
    old = {(u, v, name) for (u, v), name in zip(before.edge_index.T.tolist(), before.text_edges, strict=True)}
    keys = [(u, v, name) for (u, v), name in new]
    return (
        after.text[:n] == before.text
        and torch.equal(after.edge_index[:, :e], before.edge_index)
        and all(text.strip() for text in after.text[n:])
        and (task == "node" or len(after.text) == n)
        and all(u != v and name in GRAMMARS[task].relations for u, v, name in keys)
        and len(set(keys)) == len(keys)
        and not set(keys) & old
        and all((v, u, name) in set(keys) | old for u, v, name in keys if name == SPOUSE)
    )


def make_model(method: Method, rank: int, seed: int, smoke: bool = False) -> tuple[GTLM, str]:
    """The model, and where its weights come from."""
    biases = ("spd", "rrwp", "magnetic") if method == "gtlm" else ()
    lora = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05)
    torch.manual_seed(seed)
    if smoke:
        tokenizer = ByT5Tokenizer()  # bytes: needs no files
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 8192, "eos_token_id": 1}
        base = LlamaForCausalLM(LlamaConfig(**sizes))
        return GTLM(base, tokenizer, lora, biases=biases, new_tokens=CONTROL_TOKENS), "random"
    name, source = fetch(SMOLLM2)
    model = GTLM.from_pretrained(name, lora=lora, dtype=torch.bfloat16, biases=biases, new_tokens=CONTROL_TOKENS)
    return model, source


def make_prompt(task: Task, method: Method, tokenizer: Any) -> TokenizeAction:
    """How a graph is read: with structural features, or written out as text."""
    tokens = ActionTokens(tokenizer, GRAMMARS[task], name_of)
    features = T.Compose([AddSPD(8, directed=False), AddRRWP(16), AddMagneticLaplacian(q=0.25)])
    return TokenizeAction(tokens, transform=features if method == "gtlm" else SerializeGraph(tokenizer))


def restored(episode: TextAttributedData, task: Task) -> TextAttributedData:
    """The graph with what was hidden."""
    return action_steps(episode, GRAMMARS[task])[-1]
