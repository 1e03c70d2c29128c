"""What the GaLA benchmark asks, and what it counts as right."""

import pytest
import torch
from torch_geometric.data import Data

from benchmarks.gala.tasks import Questions
from tests.tiny import tiny_tokenizer

# 0 has neighbours of classes red, red, blue and blue; 5 hangs on 1
EDGES = torch.tensor([[0, 0, 0, 0, 1], [1, 2, 3, 4, 5]])


@pytest.fixture
def data() -> Data:
    return Data(
        edge_index=EDGES,
        num_nodes=7,
        y=torch.tensor([2, 0, 0, 1, 1, 1, 0]),
        text=[f"text {v}" for v in range(7)],
        class_names=["red", "blue", "green"],
        train_mask=torch.tensor([1, 1, 0, 0, 0, 0, 0]).bool(),
    )


def test_any_of_several_most_common_labels_is_right(data: Data) -> None:
    questions = Questions("semi-synthetic", data, tiny_tokenizer(), (20, 20), 4096)
    question = questions.about(0, (20, 20))
    assert question.right == {0, 1}
    assert 0 not in question.labels
    assert len(question.labels) == 5
    assert questions.about(1, (20, 20)).right == {1, 2}  # neighbours 0 and 5
    prompt = questions.prompt(question, "bfs")
    start, end = prompt.block[0].tolist()
    assert "Label: ?" in prompt.text[start:end]
    assert prompt.text.count("Label: ?") == 1


def test_real_text_tells_labels_of_training_nodes_only(data: Data) -> None:
    questions = Questions("real text", data, tiny_tokenizer(), (20, 20), 4096)
    question = questions.about(2, (20, 20))
    assert question.right == {0}
    told = {question.graph.text[v] for v in question.labels}
    assert told == {"text 0", "text 1"}


def test_questions_are_disjoint_and_have_neighbours(data: Data) -> None:
    questions = Questions("semi-synthetic", data, tiny_tokenizer(), (20, 20), 4096)
    sets = questions.draw(2, 2, 10)
    assert [len(part) for part in sets] == [2, 2, 2]  # node 6 stands alone
    assert all(question.right for part in sets for question in part)
