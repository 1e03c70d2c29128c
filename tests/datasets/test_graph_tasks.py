"""Generated tasks: every answer is found again in what a model sees, by a query of another kind."""

import re
from collections import Counter
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.loader import DataLoader
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.data.prompts import drop_answer
from pyg_textgraph.datasets import KGQA, Connectivity, FamilyTree, GraphQA, QuestionGraphs
from pyg_textgraph.datasets.graph_qa import TASKS, Family, Task
from pyg_textgraph.transforms import AddSPD, TokenizeQuestion

NUMBER = 200
SIZES = (NUMBER, 20, 20)


def closure(adjacency: np.ndarray) -> np.ndarray:
    """Which node can be reached from which, itself included."""
    reached = np.eye(len(adjacency), dtype=bool) | adjacency
    while (further := reached.astype(np.float32) @ reached.astype(np.float32) > 0).sum() > reached.sum():
        reached = further
    return reached


def shape_answer(task: str, adjacency: np.ndarray, nodes: list[int]) -> str:
    """By matrices alone."""
    a, n = adjacency.astype(int), len(adjacency)
    reached = closure(adjacency)
    if task == "node_count":
        return str(n)
    if task == "edge_count":
        return str(np.triu(a).sum())
    if task == "cycle_check":  # a forest has as many edges as nodes without one per component
        components = round(float((1 / reached.sum(1)).sum()))
        return "yes" if np.triu(a).sum() > n - components else "no"
    if task == "triangle_counting":
        return str(np.trace(a @ a @ a) // 6)
    if task == "node_degree":
        return str(a[nodes[0]].sum())
    if task == "connected_nodes":
        return ", ".join(map(str, np.flatnonzero(a[nodes[0]]))) or "none"
    u, v = nodes
    if task == "reachability":
        return "yes" if reached[u, v] else "no"
    if task == "edge_existence":
        return "yes" if a[u, v] else "no"
    if not reached[u, v]:
        return "no path"
    walks, length = np.eye(n, dtype=int), 0
    while not walks[u, v]:
        walks, length = (walks @ a > 0).astype(int), length + 1
    return str(length)


def seen_adjacency(data: TextAttributedData, incidence: bool) -> np.ndarray:
    """The adjacency of the number nodes, read from the edges a model gets."""
    n = sum(text.isdigit() for text in data.text)
    a = np.zeros((data.num_nodes, data.num_nodes), dtype=bool)
    source, dest = data.edge_index.numpy()
    a[source, dest] = True
    context = a[: data.target, : data.target]
    if not incidence:
        return context
    assert all(re.fullmatch(r"\(\d+, \d+\)", text) for text in data.text[n:-1])
    return (context[:n, n:].astype(int) @ context[n:, :n].astype(int) > 0) & ~np.eye(n, dtype=bool)


@pytest.mark.parametrize("form", ["standard", "incidence"])
@pytest.mark.parametrize("task", get_args(Task))
def test_graph_qa_answers(task: Task, form: str) -> None:
    data = GraphQA(task, "train", form=form, sizes=SIZES)
    assert len(data) == NUMBER
    for graph in data:
        nodes = [int(number) for number in re.findall(r"\d+", graph.question)]
        adjacency = seen_adjacency(graph, form == "incidence")
        assert 5 <= len(adjacency) <= 19
        assert (adjacency == adjacency.T).all()
        assert graph.answer == shape_answer(task, adjacency, nodes)
        pointed = graph.edge_index[1, graph.edge_index[0] == graph.target].tolist()
        assert pointed == (nodes or list(range(graph.target)))
        assert graph.text[graph.target] == graph.question


@pytest.mark.parametrize("family", get_args(Family))
def test_families(family: Family) -> None:
    data = GraphQA("edge_count", "train", family, sizes=(60, 0, 0))
    for graph in data:
        a = seen_adjacency(graph, False).astype(int)
        n, degree = len(a), sorted(a.sum(1))
        assert int(graph.answer) == a.sum() // 2
        if family == "star":
            assert degree == [1] * (n - 1) + [n - 1]
        if family == "path":
            assert degree == [1, 1] + [2] * (n - 2)
            assert closure(a > 0).all()
        if family == "complete":
            assert degree == [n - 1] * n
        if family == "barabasi_albert":
            assert closure(a > 0).all()
    if family == "star":  # the centre's name tells nothing
        centres = {int(seen_adjacency(graph, False).sum(1).argmax()) for graph in data}
        assert len(centres) > 5


def test_edge_probability_is_uniform() -> None:
    density = []
    for graph in GraphQA("edge_count", "train", sizes=(400, 0, 0)):
        n = graph.num_nodes - 1
        density.append(int(graph.answer) / (n * (n - 1) / 2))
    assert abs(np.mean(density) - 0.5) < 0.06
    assert all(60 <= count <= 140 for count in np.histogram(density, bins=4, range=(0, 1))[0])


def facts(graph: TextAttributedData) -> dict[str, np.ndarray]:
    """Relations as matrices over the first nodes, read from edge nodes and what they are linked to."""
    n = graph.num_nodes
    a = np.zeros((n, n), dtype=bool)
    source, dest = graph.edge_index.numpy()
    a[source, dest] = True
    out: dict[str, np.ndarray] = {}
    for e in range(graph.target):
        if graph.text[e].isupper() and len(graph.text[e]) > 1:  # relations are in capitals
            link = out.setdefault(graph.text[e], np.zeros((n, n), dtype=np.float32))
            link[np.ix_(a[:, e] & (np.arange(n) < graph.target), a[e])] = 1
            np.fill_diagonal(link, 0)
    return out


def relatives(word: str, links: dict[str, np.ndarray], female: np.ndarray) -> np.ndarray:
    """Who is whose relative, by products of matrices: row = of whom."""
    child = links["CHILD"]
    parent = child.T
    sibling = (parent @ child > 0) & ~np.eye(len(child), dtype=bool)
    kinds = {
        "spouse wife husband": links["SPOUSE"],
        "child daughter son": child,
        "parent mother father": parent,
        "sibling sister brother": sibling,
        "grandchild granddaughter grandson": child @ child,
        "grandparent grandmother grandfather": parent @ parent,
        "parent's_sibling aunt uncle": parent @ sibling,
        "sibling's_child niece nephew": sibling @ child,
        "cousin female_cousin male_cousin": parent @ sibling @ child,
    }
    for words, matrix in kinds.items():
        for which, name in enumerate(words.split()):
            if name.replace("_", " ") == word:
                right = np.ones(len(female), dtype=bool) if which == 0 else female == (which == 1)
                return (matrix > 0) & right
    raise AssertionError(word)


def test_family_tree_answers() -> None:
    data = FamilyTree("train", sizes=SIZES)
    kinds: Counter[str] = Counter()
    for i in range(len(data)):
        graph = data[i]
        people = {j: text for j, text in enumerate(graph.text) if "favourite" in text and j != graph.target}
        names = [text.split(",")[0] for text in people.values()]
        assert len(set(names)) == len(names)
        born = np.zeros(graph.num_nodes, dtype=int)
        female = np.zeros(graph.num_nodes, dtype=bool)
        for j, text in people.items():
            born[j], female[j] = int(re.search(r"born (\d+)", text)[1]), ", female," in text
        asked = re.fullmatch(r"What is the favourite (\w+) of (\w+)'s (.*)\?", graph.question)
        thing, name, who = asked.groups()
        rank, word = re.fullmatch(r"((?:(?:second|third|fourth) )?oldest|youngest)? ?(.*)", who).groups()
        found = np.flatnonzero(relatives(word, facts(graph), female)[names.index(name)])
        found = found[np.argsort(born[found], kind="stable")]
        assert len(set(born[found])) == len(found)
        place = {None: 0, "oldest": 0, "second oldest": 1, "third oldest": 2, "fourth oldest": 3, "youngest": -1}[rank]
        assert (rank is None) == (len(found) == 1)
        assert f"favourite {thing}: {graph.answer}" in graph.text[found[place]]
        kinds[word] += 1
    assert len(kinds) > 20


QUERIES: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    r"Is (\w+) above (\w+) in the reporting line\?": lambda r: (
        closure(r["REPORTS_TO"] > 0).T & ~np.eye(len(r["REPORTS_TO"]), dtype=bool)
    ),
    r"Do (\w+) and (\w+) work on a common project\?": lambda r: r["WORKS_ON"] @ r["WORKS_ON"].T > 0,
    r"Can (\w+) access the (\w+)\?": lambda r: r["CAN_ACCESS"] > 0,
    r"Does (\w+) work on a project that requires the (\w+)\?": lambda r: r["WORKS_ON"] @ r["REQUIRES"] > 0,
    r"Does someone who reports directly to (\w+) work on (\w+)\?": lambda r: r["REPORTS_TO"].T @ r["WORKS_ON"] > 0,
    r"Can (\w+) access some resource that (\w+) requires\?": lambda r: r["CAN_ACCESS"] @ r["REQUIRES"].T > 0,
}


def test_kgqa_answers_and_balance() -> None:
    data = KGQA("train", sizes=(NUMBER, 0, 0))
    assert len(data) == 6 * NUMBER
    answers: dict[str, Counter[str]] = {query: Counter() for query in QUERIES}
    kinds: Counter[str] = Counter()
    for start in range(0, len(data), 6):
        relations = facts(data[start])
        holds = {query: find(relations) for query, find in QUERIES.items()}
        for graph in (data[i] for i in range(start, start + 6)):
            names = [text.split(",")[0] for text in graph.text[: graph.target]]
            query = next(query for query in QUERIES if re.fullmatch(query, graph.question))
            first, second = (names.index(name) for name in re.fullmatch(query, graph.question).groups())
            assert graph.answer == ("yes" if holds[query][first, second] else "no")
            answers[query][graph.answer] += 1
        entities = [text.split(", ")[1] for text in graph.text if ", " in text]
        assert 30 <= len(entities) <= 50
        kinds.update(entities)
        managers = relations["REPORTS_TO"].sum(1)[[", person" in text for text in graph.text]]
        assert sorted(managers) == [0] + [1] * (len(managers) - 1)  # a tree
    assert all(count == Counter(yes=NUMBER // 2, no=NUMBER // 2) for count in answers.values())
    share = {kind: count / kinds.total() for kind, count in kinds.items()}
    assert share == pytest.approx({"person": 0.55, "project": 0.20, "resource": 0.25}, abs=0.03)


def test_connectivity_answers_and_balance() -> None:
    data = Connectivity("train", sizes=SIZES)
    for graph in data:
        reached = closure(seen_letters(graph))
        first, second = re.fullmatch(r"Is (\w) connected to (\w)\?", graph.question).groups()
        assert graph.answer == ("yes" if reached[graph.text.index(first), graph.text.index(second)] else "no")
        assert graph.answer == data.answers[int(graph.y)]
        assert 2 <= len({tuple(row) for row in reached}) <= 4
    assert Counter(graph.answer for graph in data) == Counter(yes=NUMBER // 2, no=NUMBER // 2)


def seen_letters(graph: TextAttributedData) -> np.ndarray:
    a = np.zeros((graph.num_nodes, graph.num_nodes), dtype=bool)
    a[graph.edge_index[0].numpy(), graph.edge_index[1].numpy()] = True
    return a[: graph.target, : graph.target]


def make(name: str, split: str = "train", **kwargs: object) -> QuestionGraphs:
    if name in TASKS:
        return GraphQA(name, split, **kwargs)
    return {"family": FamilyTree, "kgqa": KGQA, "connectivity": Connectivity}[name](split, **kwargs)


EVERY = [*TASKS, "family", "kgqa", "connectivity"]


@pytest.mark.parametrize("name", EVERY)
def test_seeds_splits_and_sizes(name: str) -> None:
    small = {"sizes": (30, 20, 20)}
    splits = {split: make(name, split, **small).questions for split in ("train", "val", "test")}
    assert splits["train"] == make(name, **small).questions
    assert splits["train"] != make(name, seed=1, **small).questions
    more = make(name, sizes=(40, 20, 20)).questions
    assert more[: len(splits["train"])] == splits["train"]
    seen = [{question.seen for question in splits[split]} for split in ("train", "val", "test")]
    assert not seen[0] & seen[1]
    assert not (seen[0] | seen[1]) & seen[2]


@pytest.mark.parametrize("name", EVERY)
def test_no_answer_leaks(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """The question does not say the answer, and what is read to classify does not depend on it."""
    data = make(name, sizes=(40, 0, 0))
    tokens = TokenizeQuestion(tokenizer)
    for i in range(40):
        graph = data[i]
        if name in ("family", *TASKS):
            said = re.findall(r"\w+", re.sub(r"node \d+", "", graph.question).lower())
            assert not set(said) & set(re.findall(r"\w+", graph.answer)) - {"no", "path"}
        other = data[i]
        other.answer = "something else entirely"
        read = drop_answer(tokens(graph))
        assert read.input_ids.tolist() == drop_answer(tokens(other)).input_ids.tolist()
        end = int(read.num_tokens[: read.target + 1].sum())
        assert (
            tokenizer.decode(read.input_ids[end - int(read.num_tokens[read.target]) : end]) == f"{graph.question}\n A:"
        )
        full = tokens(graph)
        supervised = full.input_ids[full.labels >= 0]
        assert tokenizer.decode(supervised) == f" {graph.answer}<eos>"


def test_answers_are_not_told_by_names() -> None:
    """Whether the first mentioned letter comes before the second, or stands first, says nothing about the answer."""
    data = Connectivity("train", sizes=(1000, 0, 0)).questions
    first = [question.mentions[0] < question.mentions[1] for question in data]
    yes = [question.answer == "yes" for question in data]
    assert abs(np.corrcoef(first, yes)[0, 1]) < 0.1


def test_batches_on_workers() -> None:
    data = GraphQA("reachability", sizes=(12, 0, 0), transform=T.Compose([AddSPD(8)]))
    alone, workers = (list(DataLoader(data, batch_size=4, num_workers=count)) for count in (0, 2))
    for a, b in zip(alone, workers, strict=True):
        assert a.question == b.question
        assert torch.equal(a.edge_index, b.edge_index)
        assert torch.equal(a.spd, b.spd)
        assert a.target.tolist() == b.target.tolist()


def test_rendering() -> None:
    text = FamilyTree(sizes=(1, 0, 0)).render(0)
    question = FamilyTree(sizes=(1, 0, 0)).questions[0]
    couples = question.relations.count("SPOUSE") // 2
    assert len(re.findall(r"\d+ -SPOUSE- \d+", text)) == couples
    assert len(re.findall(r"\d+ -CHILD-> \d+", text)) == question.relations.count("CHILD")
    assert text.endswith(f"question: {question.question}\nanswer: {question.answer}")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GraphQA("colour"), "GraphQA: 'task' is 'colour'"),
        (lambda: GraphQA("node_count", family="tree"), "GraphQA: 'family' is 'tree'"),
        (lambda: GraphQA("node_count", "dev"), "'split' is 'dev'"),
        (lambda: GraphQA("node_count", sizes=(1, 2)), "expected three numbers"),
        (lambda: GraphQA("node_count", seed=-1), "'seed' is -1"),
        (lambda: GraphQA("node_count", form="graph"), "'form' is 'graph'"),
        (lambda: FamilyTree(form="standard", sizes=(1, 0, 0)), "FamilyTree: form 'standard' loses the relations"),
        (lambda: Connectivity(num_nodes=(3, 5)), r"Connectivity: 'num_nodes' is \(3, 5\)"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_question_without_answer_ends_before_it(tokenizer: PreTrainedTokenizerFast) -> None:
    question = TextAttributedData(text=["a"], target=0)
    open_ended = TokenizeQuestion(tokenizer)(question)
    assert tokenizer.decode(open_ended.input_ids) == "a\n A:"
    assert open_ended.labels.tolist() == [-100] * len(open_ended.labels)
    question.answer = "b"
    answered = TokenizeQuestion(tokenizer)(question)
    assert answered.input_ids[: len(open_ended.input_ids)].tolist() == open_ended.input_ids.tolist()
