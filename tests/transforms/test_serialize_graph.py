import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose, ToSparseTensor

from pyg_textgraph.data import TaskPrompt, TextAttributedData, add_question_node
from pyg_textgraph.transforms import EgoTextSampler, IncidenceGraph, SerializeGraph, TokenizeText

FAMILY = """Nodes:
0: Ann
1: Bob
2: Cid
Edges:
(0, SPOUSE, 1)
(1, SPOUSE, 0)
(0, CHILD, 2)

Who is the child of Ann?"""


def family(**kwargs: object) -> TextAttributedData:
    return TextAttributedData(
        text=["Ann", "Bob", "Cid"],
        edge_index=torch.tensor([[0, 1, 0], [1, 0, 2]]),
        text_edges=["SPOUSE", "SPOUSE", "CHILD"],
        **kwargs,
    )


def whole_text(data: TextAttributedData, tokenizer) -> str:
    return tokenizer.decode(data.input_ids)


def test_a_graph_with_a_question() -> None:
    data = family(question="Who is the child of Ann?", answer="Cid", y=torch.tensor([2]))
    out = SerializeGraph()(data)
    assert out.text == [FAMILY]
    assert (out.num_nodes, out.target, out.num_edges) == (1, 0, 0)
    assert (out.answer, out.question, out.y.tolist()) == ("Cid", data.question, [2])
    assert out.validate()
    assert data.text == ["Ann", "Bob", "Cid"]


def test_relation_nodes_become_lines_again() -> None:
    question = "Who is the child of Ann?"
    data = add_question_node(IncidenceGraph()(family()), question, [0])
    data.question = question
    assert data.text == ["Ann", "Bob", "Cid", "SPOUSE", "CHILD", question]
    assert SerializeGraph()(data).text == [FAMILY]


def test_what_incidence_graphs_merge_and_keep() -> None:
    edges = torch.tensor([[0, 0, 1, 2, 1], [1, 1, 0, 2, 2]])
    plain = TextAttributedData(
        text=list("abc"), edge_index=edges, text_edges=["boss", "boss", "peer", "self", "boss"], question="?"
    )
    lines = ["(0, boss, 1)", "(1, peer, 0)", "(2, self, 2)", "(1, boss, 2)"]
    assert SerializeGraph()(plain).text[0].split("\n")[5:-2] == lines
    assert SerializeGraph()(IncidenceGraph()(plain.clone())).text[0].split("\n")[5:-2] == lines


def test_an_undirected_edge_can_be_one_line() -> None:
    once = FAMILY.replace("(1, SPOUSE, 0)\n", "")
    data = family(question="Who is the child of Ann?")
    assert SerializeGraph(merge_reciprocal=True)(data).text == [once]
    assert SerializeGraph(merge_reciprocal=True)(IncidenceGraph()(data)).text == [once]
    # other relations back, loops, and what is there twice anyway
    edges = torch.tensor([[1, 0, 0, 2, 2], [0, 1, 1, 2, 2]])
    mixed = TextAttributedData(
        text=list("abc"), edge_index=edges, text_edges=["boss", "boss", "peer", "self", "self"], question="?"
    )
    lines = SerializeGraph(merge_reciprocal=True)(mixed).text[0].split("\n")[5:-2]
    assert lines == ["(1, boss, 0)", "(0, peer, 1)", "(2, self, 2)"]
    assert str(SerializeGraph(merge_reciprocal=True)) == "SerializeGraph(merge_reciprocal=True)"


def test_an_end_that_was_cut_off() -> None:
    cut = IncidenceGraph()(family(target=0)).subgraph(torch.tensor([0, 4]))
    assert SerializeGraph()(cut).text == ["Nodes:\nEdges:\n(0, CHILD, ?)\n\n0: Ann"]


def test_untyped_edges_and_a_target_of_the_graph() -> None:
    data = Data(text_nodes=["a", "b", "c"], edge_index=torch.tensor([[1, 1], [0, 0]]), num_nodes=3, target=1)
    data.n_id = torch.tensor([7, 8, 9])
    data.edge_attr = torch.ones(2, 4)
    out = SerializeGraph()(data)
    assert out.text == ["Nodes:\n0: a\n2: c\nEdges:\n(1, 0)\n\n1: b"]
    assert out.n_id.tolist() == [8]
    assert "edge_attr" not in out
    data.edge_index = data.edge_index[:, :0]
    data.edge_attr = data.edge_attr[:0]
    assert SerializeGraph()(data).text == ["Nodes:\n0: a\n2: c\n\n1: b"]


def test_a_tokenized_graph_reads_the_same_and_keeps_its_supervision(tokenizer) -> None:
    prompt = TaskPrompt(tokenizer, "Which class?", ["body", "motion"])
    data = family(target=1, y=torch.tensor(1))
    tokenized = TokenizeText(tokenizer, prompt)(IncidenceGraph()(data.clone()))
    out = SerializeGraph(tokenizer)(tokenized)
    assert out.validate()
    assert whole_text(out, tokenizer) == (
        "Nodes:\n0: Ann\n2: Cid\nEdges:\n(0, SPOUSE, 1)\n(1, SPOUSE, 0)\n(0, CHILD, 2)\n\n"
        "1: Bob\n\nWhich class?\n A: motion<eos>"
    )
    assert out.num_tokens.tolist() == [out.input_ids.numel()]
    supervised = out.labels >= 0
    assert out.input_ids[supervised].equal(out.labels[supervised])
    assert tokenizer.decode(out.labels[supervised]) == " motion<eos>"


def test_the_egos_of_a_big_graph(tokenizer) -> None:
    data = TextAttributedData(
        text=[f"verb number {i}" for i in range(6)],
        edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]),
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
    )
    options = {"question": "Which?", "class_names": ["a", "b"], "max_neighbor_tokens": 4}
    plain = EgoTextSampler(2).dataset(data, [2], tokenizer, **options)[0]
    (out,) = EgoTextSampler(2).dataset(data, [2], tokenizer, transform=SerializeGraph(tokenizer), **options)
    assert plain.n_id[1:].sort().values.tolist() == [1, 3]
    short = [tokenizer.decode(plain.input_ids[a:b]) for a, b in plain.token_ptr.unfold(0, 2, 1)[1:].tolist()]
    place = {int(node): i for i, node in enumerate(plain.n_id)}
    assert whole_text(out, tokenizer) == (
        f"Nodes:\n1: {short[0]}\n2: {short[1]}\nEdges:\n({place[1]}, 0)\n(0, {place[3]})\n\n"
        "0: verb number 2\n\nWhich?\n A: a<eos>"
    )
    assert out.y.tolist() == [0]
    assert out.n_id.tolist() == [2]


def test_without_neighbours_the_text_is_all_there_is(tokenizer) -> None:
    alone = TextAttributedData(
        text=["run"], edge_index=torch.empty(2, 0, dtype=torch.long), target=0, y=torch.tensor([3])
    )
    assert Compose([SerializeGraph()])(alone).text == ["Nodes:\n\n0: run"]
    assert SerializeGraph()(alone).y.tolist() == [3]


def test_a_graph_of_one_edge_keeps_its_label(tokenizer) -> None:
    data = TextAttributedData(
        text=[f"n{i}" for i in range(6)], edge_index=torch.tensor([[0, 2, 3], [1, 3, 4]]), y=torch.tensor([0, 1] * 3)
    )
    egos = EgoTextSampler(5).dataset(
        data, [2, 0], tokenizer, question="Which?", class_names=["a", "b"], transform=SerializeGraph(tokenizer)
    )
    assert Batch.from_data_list(list(egos)).y.tolist() == [0, 0]


def test_egos_keep_the_names_of_relations(tokenizer) -> None:
    egos = EgoTextSampler(5).dataset(family(), [0], tokenizer, question="Who?", transform=SerializeGraph(tokenizer))
    assert "(0, CHILD, " in whole_text(egos[0], tokenizer)


def test_bad_input(tokenizer) -> None:
    with pytest.raises(ValueError, match="neither 'target' nor 'question'"):
        SerializeGraph()(family())
    with pytest.raises(ValueError, match="no 'tokenizer'"):
        SerializeGraph()(TokenizeText(tokenizer)(family(target=0)))
    with pytest.raises(TypeError, match="before batching"):
        SerializeGraph()(Batch.from_data_list([family(target=0)]))
    with pytest.raises(ValueError, match="is a relation"):
        SerializeGraph()(IncidenceGraph()(family(target=0)).update({"target": 3}))
    with pytest.raises(ValueError, match="'text_edges' has 2 entries but the graph has 3 edges"):
        SerializeGraph()(family(target=0).update({"text_edges": ["a", "b"]}))


def test_a_sparse_adjacency_is_written_too() -> None:
    data = TextAttributedData(text=["run", "walk", "go"], edge_index=torch.tensor([[0, 1], [1, 2]]), target=1)
    sparse = SerializeGraph()(ToSparseTensor(layout=torch.sparse_csr)(data.clone()))
    assert sparse.text == SerializeGraph()(data).text
    assert "adj_t" not in sparse


def test_both_directions_are_one_line_whatever_became_of_them(tokenizer) -> None:
    lines = SerializeGraph(merge_reciprocal=True)(family(target=2)).text[0]
    nodes = IncidenceGraph(merge_reciprocal=False)(family(target=2))
    assert SerializeGraph(merge_reciprocal=True)(nodes).text[0] == lines
    tokens = SerializeGraph(tokenizer, merge_reciprocal=True)(TokenizeText(tokenizer)(nodes))
    assert whole_text(tokens, tokenizer).count("SPOUSE") == lines.count("SPOUSE") == 1
