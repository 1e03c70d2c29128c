"""Questions find the part of a knowledge graph that answers them."""

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.nn import GTLM
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, RetrieveSubgraph, TokenizeQuestion
from tests.nn.families import tiny

# two parts without a link between them
TRIPLES = [
    ("Ann", "made", "Dune"), ("Bob", "starred in", "Dune"), ("Bob", "married", "Cid"), ("Cid", "wrote", "Solaris"),
    ("Eve", "lives in", "Oslo"), ("Oslo", "lies in", "Norway"), ("Norway", "borders", "Sweden"),
]  # fmt: skip
NAMES = list(dict.fromkeys(name for u, _, v in TRIPLES for name in (u, v)))
WORDS = sorted({word for triple in TRIPLES for part in triple for word in part.split()})


def bag_of_words(texts: list[str]) -> Tensor:
    """Texts are alike where they share words."""
    known = [[float(word in text.rstrip("?").split()) for word in WORDS] for text in texts]
    return torch.tensor(known) + 1e-3


def knowledge() -> Data:
    edges = [(NAMES.index(u), NAMES.index(v)) for u, _, v in TRIPLES]
    return Data(text=NAMES, edge_index=torch.tensor(edges).T, text_edges=[" ".join(x) for x in TRIPLES], num_nodes=9)


def ask(question: str, **options: Any) -> Data:
    return RetrieveSubgraph(knowledge(), bag_of_words, **options)(Data(question=question, answer="yes"))


def test_the_part_that_answers_is_found_and_asked() -> None:
    found = ask("Who starred in Dune?", num_nodes=1, num_edges=1)
    assert found.text == ["Dune", "Bob", "Bob starred in Dune", "Who starred in Dune?"]
    assert found.retrieved.tolist() == [NAMES.index("Dune"), NAMES.index("Bob")]
    assert found.retrieved_triples.tolist() == [1]
    # Bob -> triple -> Dune, and the question points at the node that is most like it
    assert sorted(found.edge_index.T.tolist()) == [[1, 2], [2, 0], [3, 0]]
    assert int(found.target) == 3
    assert (found.answer, found.num_nodes) == ("yes", 4)


@pytest.mark.parametrize("question", ["Who made Dune?", "Bob married", "Is Oslo in Sweden?", "Ann Eve", "no idea"])
@pytest.mark.parametrize("options", [{}, {"num_nodes": 9, "num_edges": 7}, {"num_edges": 0}, {"max_path": 0}])
def test_what_is_found_is_connected_and_part_of_the_graph(question: str, options: dict[str, Any]) -> None:
    found, graph = ask(question, **options), knowledge()
    n, m = len(found.retrieved), len(found.retrieved_triples)
    assert found.text == [
        *(NAMES[i] for i in found.retrieved.tolist()),
        *(graph.text_edges[i] for i in found.retrieved_triples.tolist()),
        question,
    ]
    ends = graph.edge_index[:, found.retrieved_triples]
    expected = {(int(u), n + i) for i, u in enumerate(ends[0])} | {(n + i, int(v)) for i, v in enumerate(ends[1])}
    place = dict(enumerate(found.retrieved.tolist()))
    inside = [(u, v) for u, v in found.edge_index.T.tolist() if u != n + m]
    assert {(place.get(u, u), place.get(v, v)) if u < n else (u, place[v]) for u, v in inside} == expected
    assert nx.is_connected(nx.Graph([(n + m, n + m), *found.edge_index.T.tolist()]))
    assert [u for u, _ in found.edge_index.T.tolist()].count(n + m) >= 1


def test_what_is_too_far_away_is_left_out() -> None:
    question = "Did Ann know Solaris?"
    far, near = (ask(question, num_nodes=2, num_edges=0, max_path=most) for most in (4, 3))
    assert [NAMES[i] for i in far.retrieved] == ["Ann", "Dune", "Bob", "Cid", "Solaris"]
    assert far.retrieved_triples.tolist() == [0, 1, 2, 3]
    assert [NAMES[i] for i in near.retrieved] == ["Ann"]
    # the question points at what it names, not at the nodes on the way
    assert sorted(v for u, v in far.edge_index.T.tolist() if u == far.num_nodes - 1) == [0, 4]


def test_of_parallel_edges_the_one_that_is_asked_about_joins() -> None:
    graph = knowledge()
    for name in ("knows", "saw"):
        graph.edge_index = torch.cat([graph.edge_index, torch.tensor([[1], [0]])], 1)
        graph.text_edges = [*graph.text_edges, f"Dune {name} Ann"]

    def embed(texts: list[str]) -> Tensor:
        words = ("Ann", "Dune", "saw", "knows", "made")
        return torch.tensor([[float(word in text) for word in words] for text in texts])

    retrieve = RetrieveSubgraph(graph, embed, num_nodes=2, num_edges=0)
    assert retrieve(Data(question="Ann saw Dune")).retrieved_triples.tolist() == [8]
    assert retrieve(Data(question="Ann made Dune")).retrieved_triples.tolist() == [0]


def test_the_graph_is_embedded_once() -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> Tensor:
        calls.append(texts)
        return bag_of_words(texts)

    graph = knowledge()
    graph.text_edges[3] = graph.text_edges[1]
    retrieve = RetrieveSubgraph(graph, embed)
    retrieve(Data(question="Who?"))
    retrieve(Data(question="Where?"))
    assert [len(texts) for texts in calls] == [9, 6, 1, 1]
    assert repr(retrieve) == "RetrieveSubgraph(9 nodes, 7 edges, num_nodes=3, num_edges=5, max_path=2)"


def test_gtlm_answers(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = GTLM(tiny("llama", vocab_size=400, max_position_embeddings=256), tokenizer, LoraConfig(r=4, lora_alpha=8))
    prepare = T.Compose(
        [
            RetrieveSubgraph(knowledge(), bag_of_words), TokenizeQuestion(tokenizer), AddSPD(8), AddRRWP(16),
            AddMagneticLaplacian(q=0.25),
        ]
    )  # fmt: skip
    asked = [("Who made Dune?", "Ann"), ("Who wrote Solaris?", "Cid"), ("Where does Eve live?", "Oslo")]
    graphs = [prepare(Data(question=q, answer=a)) for q, a in asked]
    batch = next(iter(DataLoader(graphs, batch_size=3)))
    optimizer = torch.optim.AdamW(model.param_groups(lr=2e-2, bias_lr=2e-2))
    for _ in range(70):
        optimizer.zero_grad()
        loss = model(batch).loss
        loss.backward()
        optimizer.step()
    model.eval()
    assert [text.strip() for text in model.generate(batch, 9)] == ["Ann", "Cid", "Oslo"]
    unanswered = Batch.from_data_list([prepare(Data(question=q)) for q, _ in asked])
    assert model.generate(unanswered, 9) == model.generate(batch, 9)


def without(key: str) -> Callable[[], object]:
    graph = knowledge()
    del graph[key]
    return lambda: RetrieveSubgraph(graph, bag_of_words)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (without("text_edges"), "'text_edges' is missing, expected 7 texts"),
        (without("edge_index"), "'graph' has no 'edge_index'"),
        (lambda: RetrieveSubgraph(Data(text=["a"], edge_index=torch.empty(2, 0, dtype=torch.long), text_edges=[],
                                       num_nodes=1), bag_of_words), "'graph' has no edges"),
        (lambda: RetrieveSubgraph(knowledge(), bag_of_words, num_nodes=0), "'num_nodes' is 0"),
        (lambda: RetrieveSubgraph(knowledge(), lambda texts: torch.zeros(2)), r"'embed' gave \(2,\) for 9 texts"),
        (lambda: RetrieveSubgraph(knowledge(), bag_of_words)(Data()), "'question' is None, expected a text"),
        (lambda: ask(" "), "'question' is ' '"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
