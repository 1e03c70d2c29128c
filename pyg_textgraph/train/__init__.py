"""One small training loop, its checkpoints, and evaluation."""

from pyg_textgraph.train.baselines import label_propagation, majority, neighbour_vote
from pyg_textgraph.train.config import TrainConfig
from pyg_textgraph.train.evaluate import answer_tokens, class_scores, written_answers
from pyg_textgraph.train.gnn import GNNConfig, embed_texts, train_gnn
from pyg_textgraph.train.links import LinkObjective, LinkTrainer, in_batch_candidates, link_ranks
from pyg_textgraph.train.predict import NodePredictions, predict_nodes
from pyg_textgraph.train.trainer import Interrupted, Trainer

__all__ = [
    "GNNConfig",
    "Interrupted",
    "LinkObjective",
    "LinkTrainer",
    "NodePredictions",
    "TrainConfig",
    "Trainer",
    "answer_tokens",
    "class_scores",
    "embed_texts",
    "in_batch_candidates",
    "label_propagation",
    "link_ranks",
    "majority",
    "neighbour_vote",
    "predict_nodes",
    "train_gnn",
    "written_answers",
]
