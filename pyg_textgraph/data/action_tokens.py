"""Actions as tokens, and which tokens may come next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data.graph_actions import Action, AddEdge, AddNode, GraphGrammar, Stop, checked_graph
from pyg_textgraph.data.text_attributed_data import TextAttributedData
from pyg_textgraph.data.tokenization import check_unicode, node_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTROL_TOKENS = {"<ADD_NODE>": "add a node", "<ADD_EDGE>": "add an edge", "<STOP>": "done"}
"""The control tokens, and the words that they mean: ``GTLM(..., new_tokens=CONTROL_TOKENS)`` learns them."""
INCOMPLETE = "\ufffd"  # what decoders make of a part of a character
Ids = tuple[int, ...]


class ActionTokens:
    """The tokens of actions. One action is one answer of a language model:

    ::

        <ADD_NODE> Ada, female<end>
        <ADD_EDGE> Ada<end> CHILD<end> Bob<end>
        <STOP>

    A relation stands there only if edges have names. Every field ends with the tokenizer's end token, which no field
    contains, so no field begins another one, and a field with few values is a choice in a trie of their tokens.

    Nodes are called by a part of their texts, without reference to their order. Where names are equal, later nodes get
    a number, ``Ada (2)``, which is also shown to the reader (:meth:`readable`).

    Args:
        tokenizer: Any Hugging Face tokenizer with an end token.
        grammar: Which actions there are.
        name: What a node is called, of its text; the whole text by default.
        controls: What begins the three actions. What is not in the tokenizer as a token of its own is spelt.

    Raises:
        ValueError: If there is no end token, or a control is the beginning of another one.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        grammar: GraphGrammar,
        name: Callable[[str], str] | None = None,
        controls: Sequence[str] = tuple(CONTROL_TOKENS),
    ) -> None:
        if tokenizer.eos_token_id is None:
            raise ValueError("ActionTokens: the tokenizer has no 'eos_token', which ends a field")
        self.tokenizer, self.grammar, self.name = tokenizer, grammar, name
        self.end = int(tokenizer.eos_token_id)
        if len(controls) != 3:
            raise ValueError(f"ActionTokens: 'controls' is {list(controls)}, expected three: node, edge, stop")
        spelt: list[Ids] = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in controls]
        for i, first in enumerate(spelt):
            if any(other[: len(first)] == first for j, other in enumerate(spelt) if i != j):
                raise ValueError(f"ActionTokens: control {controls[i]!r} is empty or begins another of {controls}")
        self.add_node, self.add_edge, self.stop = spelt
        self.relation_ids = {self.field(name): name for name in grammar.relations}
        self.text_ids_of = None if grammar.node_texts is None else {self.field(x): x for x in grammar.node_texts}
        for given, made in ((grammar.relations, self.relation_ids), (grammar.node_texts, self.text_ids_of)):
            if given is not None and made is not None and len(given) != len(made):
                raise ValueError(f"ActionTokens: the tokenizer does not tell all of {list(given)} apart")

    def field(self, text: str) -> Ids:
        """Tokens of one field of an action, end token included."""
        check_unicode(text, f"field {text!r}")
        # a text that spells a special token must not become one: it could end the field
        ids = self.tokenizer(" " + text.strip(), add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return (*(i for i in ids if i != self.end), self.end)

    def names(self, data: Data) -> dict[Ids, int]:
        """What every node is called: the tokens of its field, in the order of the nodes.

        Raises:
            ValueError: If the tokenizer does not tell numbers apart.
        """
        return {ids: node for node, (ids, _) in enumerate(self._named(data))}

    def readable(self, data: Data) -> TextAttributedData:
        """A copy of a graph to be read: its texts show the numbers of nodes with equal names."""
        out = checked_graph(data)
        out.text = [text + number for text, (_, number) in zip(out.text, self._named(out), strict=True)]
        return out

    def _named(self, data: Data) -> list[tuple[Ids, str]]:
        texts = node_texts(data)
        taken: set[Ids] = set()
        last: dict[str, int] = {}  # the highest number given to a name so far
        out = []
        for text in texts:
            base = (self.name(text) if self.name is not None else text).strip() or text.strip() or "node"
            for k in range(last.get(base, 0) + 1, 2 * len(texts) + 2):
                number = f" ({k})" if k > 1 else ""
                ids = self.field(base + number)
                if ids not in taken:
                    break
            else:
                raise ValueError(f"ActionTokens: the tokenizer does not tell {base!r} from earlier nodes by a number")
            last[base] = k
            taken.add(ids)
            out.append((ids, number))
        return out

    @cached_property
    def text_ids(self) -> Tensor:
        """The tokens that a free text may have: all but special ones."""
        banned = {*self.tokenizer.all_special_ids, self.end}
        banned |= {ids[0] for ids in (self.add_node, self.add_edge, self.stop) if len(ids) == 1}
        return torch.tensor(sorted(set(self.tokenizer.get_vocab().values()) - banned))

    @cached_property
    def visible_ids(self) -> Tensor:
        """Those of :attr:`text_ids` that alone are a visible text of whole characters."""
        texts = [self.decode([i]) for i in self.text_ids.tolist()]
        return self.text_ids[torch.tensor([bool(text.strip()) and INCOMPLETE not in text for text in texts])]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens, nothing tidied up."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def encode(self, action: Action, data: Data) -> Tensor:
        """An action in a graph as tokens, (L,).

        Raises:
            ValueError: If the grammar does not allow it there, or a new node's text has too many tokens.
        """
        self.grammar.check(data, action)
        if isinstance(action, Stop):
            return torch.tensor(self.stop)
        if isinstance(action, AddNode):
            ids, most = self.field(action.text), self.grammar.max_text_tokens
            if self.text_ids_of is None and len(ids) - 1 > most:
                raise ValueError(
                    f"ActionTokens: the text {action.text!r} has {len(ids) - 1} tokens, expected at most {most}"
                )
            return torch.tensor([*self.add_node, *ids])
        names = list(self.names(data))
        relation = self.field(action.relation) if self.grammar.relations else ()
        return torch.tensor([*self.add_edge, *names[action.source], *relation, *names[action.target]])

    def parser(self, data: Data) -> ActionParser:
        """Follows one action in a graph, token by token."""
        return ActionParser(self, data)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.grammar})"


class ActionParser:
    """Follows one action in a graph, token by token.

    Wherever it stands, some token is allowed, and whatever allowed tokens are pushed, it comes to an action that the
    grammar allows after finitely many.

    Attributes:
        action: The action, once it is complete; None before.
    """

    def __init__(self, tokens: ActionTokens, data: Data) -> None:
        self.tokens, self.data = tokens, data
        self.action: Action | None = None
        self._open = tokens.grammar.open_edges(data)  # [R, N, N]
        self._names = tokens.names(data)
        self._text: list[int] | None = None  # of a free text, so far
        self._trie: dict[int, Any] = {}  # what is still possible in a field with few values
        self._chosen: Callable[[Any], None] = self._begin
        kinds: dict[Ids, Hashable] = {tokens.stop: "stop"}
        if tokens.grammar.add_nodes:
            kinds[tokens.add_node] = "node"
        if bool(self._open.any()):
            kinds[tokens.add_edge] = "edge"
        self._choose(kinds, self._begin)

    def allowed(self) -> Tensor:
        """The tokens that may come next, (A,): at least one until the action is complete, then none."""
        if self.action is not None:
            return torch.empty(0, dtype=torch.long)
        if self._text is None:
            return torch.tensor(sorted(self._trie))
        most, text = self.tokens.grammar.max_text_tokens, self.tokens.decode(self._text)
        end = torch.tensor([self.tokens.end] if text.strip() else [], dtype=torch.long)
        if len(self._text) == most:
            return end
        # parts of a character may turn out to be a space: the last token must not leave a blank text
        blank = not text.replace(INCOMPLETE, "").strip()
        more = self.tokens.visible_ids if blank and len(self._text) == most - 1 else self.tokens.text_ids
        return torch.cat([more, end])

    def push(self, token: int) -> None:
        """Takes the next token.

        Raises:
            ValueError: If it is not allowed.
        """
        if not bool((self.allowed() == token).any()):
            raise ValueError(f"ActionParser: token {token} is not allowed here")
        if self._text is None:
            below = self._trie[token]
            if isinstance(below, dict):
                self._trie = below
            else:
                self._chosen(below[0])
        elif token == self.tokens.end:
            self.action = AddNode(self.tokens.decode(self._text).strip())
        else:
            self._text.append(token)

    def _choose(self, values: Mapping[Ids, Any], then: Callable[[Any], None]) -> None:
        """The next field is one of some values, none of whose tokens begin another's."""
        self._trie, self._chosen = {}, then
        for ids, value in values.items():
            place = self._trie
            for token in ids[:-1]:
                place = place.setdefault(token, {})
            place[ids[-1]] = (value,)

    def _begin(self, kind: str) -> None:
        if kind == "stop":
            self.action = Stop()
        elif kind == "edge":
            self._choose(self._nodes(self._open.any(2).any(0)), self._relation)
        elif self.tokens.text_ids_of is not None:
            self._choose(self.tokens.text_ids_of, self._end_node)
        else:
            self._text = []

    def _end_node(self, text: str) -> None:
        self.action = AddNode(text)

    def _nodes(self, possible: Tensor) -> dict[Ids, int]:
        """Shapes: **possible** (N,) bool."""
        keep = possible.tolist()
        return {ids: node for ids, node in self._names.items() if keep[node]}

    def _relation(self, source: int) -> None:
        possible = self._open[:, source].any(1).tolist()  # [R]
        if not self.tokens.grammar.relations:
            self._target(source, 0)
            return
        place = {name: i for i, name in enumerate(self.tokens.grammar.relations)}
        names = {ids: place[name] for ids, name in self.tokens.relation_ids.items() if possible[place[name]]}
        self._choose(names, lambda relation: self._target(source, relation))

    def _target(self, source: int, relation: int) -> None:
        name = self.tokens.grammar.names[relation]

        def end(target: int) -> None:
            self.action = AddEdge(source, target, name)

        self._choose(self._nodes(self._open[relation, source]), end)
