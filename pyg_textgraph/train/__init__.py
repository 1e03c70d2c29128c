"""One small training loop, its checkpoints, and evaluation."""

from pyg_textgraph.train.baselines import label_propagation, majority, neighbour_vote
from pyg_textgraph.train.config import TrainConfig
from pyg_textgraph.train.distributed import gather_state, joint_loss, mean_over_processes, restore_state, shard
from pyg_textgraph.train.evaluate import answer_tokens, class_scores, written_answers
from pyg_textgraph.train.gnn import GNNConfig, build_gnn, embed_texts, train_gnn
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
    "build_gnn",
    "class_scores",
    "embed_texts",
    "gather_state",
    "in_batch_candidates",
    "joint_loss",
    "label_propagation",
    "link_ranks",
    "majority",
    "mean_over_processes",
    "neighbour_vote",
    "predict_nodes",
    "restore_state",
    "shard",
    "train_gnn",
    "written_answers",
]
