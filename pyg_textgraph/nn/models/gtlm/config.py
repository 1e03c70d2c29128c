"""What a GTLM is made of, apart from its language model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pyg_textgraph.nn.bias import GraphBiasConfig
from pyg_textgraph.ops.graph_attention import Backend


@dataclass
class GTLMConfig(GraphBiasConfig):
    """Configuration of a :class:`GTLM`.

    Args:
        k_hop: Tokens of nodes more than this many undirected hops apart do not see each other; None shows all.
        through_target: Whether distances between context nodes count paths through the target.
        backend: See :func:`~pyg_textgraph.ops.graph_attention`.
        **kwargs: The fields of :class:`~pyg_textgraph.nn.bias.GraphBiasConfig`.
    """

    k_hop: int | None = None
    through_target: bool = False
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k_hop is not None and self.k_hop < 0:
            raise ValueError(f"GTLMConfig: 'k_hop' is {self.k_hop}, expected None or at least 0")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json_string(self) -> str:
        """What the loggers of Hugging Face's trainer write down."""
        return json.dumps(self.to_dict(), indent=1)
