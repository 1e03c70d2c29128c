import torch

from pyg_textgraph.data import TextAttributedData

NAMES = ["motion", "weather", "body"]


def verbs(num_nodes: int = 30, seed: int = 0) -> TextAttributedData:
    """A small graph with everything a sampler has to carry along; text v says ``verb v``."""
    random = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(num_nodes, (2, 3 * num_nodes), generator=random)
    return TextAttributedData(
        text=[f"verb {v} run" for v in range(num_nodes)],
        edge_index=edge_index,
        edge_type=torch.arange(edge_index.size(1)),
        text_edges=[f"edge {e}" for e in range(edge_index.size(1))],
        x=torch.arange(num_nodes, dtype=torch.float)[:, None],
        y=torch.arange(num_nodes) % 3,
        class_names=NAMES,
        train_mask=torch.arange(num_nodes) < 20,
    )
