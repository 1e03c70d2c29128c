"""What a GraphFormers is made of, apart from its text encoder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class GraphFormersConfig:
    """Configuration of a :class:`GraphFormers`.

    Args:
        symmetric: Whether the graph vector is a whole token of the centre: it also asks, passes the feed-forward
            network, and what becomes of it is added to the next layer's graph vector. By default it only gives a key
            and a value.
        bidirectional: Whether neighbours get a graph vector too, from the same neighbourhood. By default only the
            centre does, so that neighbours' states do not depend on it and can be cached.
        relation_bias: Whether the graph step has a bias per relation and head.
        shared_attention: Whether all layers share one graph step.
    """

    symmetric: bool = False
    bidirectional: bool = False
    relation_bias: bool = True
    shared_attention: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
