"""Configuration of a Graph Machine and the published models."""

from fractions import Fraction
from typing import Any

from transformers import PreTrainedConfig

from pyg_textgraph.nn.sparse_edge_referral import TemperatureKind

_BUDGETS = {"theia": [2, 4, 4, 2], "hyperion": [4, 4, 4, 4]}


def _sparse(family: str, edges: int, referrals: int, dense_refresh: int = 0) -> dict[str, Any]:
    return {
        "num_sparse_layers": 21,
        "budgets": _BUDGETS[family],
        "num_edges": edges,
        "num_referrals": referrals,
        "dense_refresh": dense_refresh,
    }


PRESETS: dict[str, dict[str, Any]] = {
    "qwen3": {"num_sparse_layers": 0},
    "theia-k24": _sparse("theia", 24, 0),
    "theia-k32-r2": _sparse("theia", 32, 2),
    "theia-k24-r3": _sparse("theia", 24, 3),
    "theia-k24-r4": _sparse("theia", 24, 4),
    "theia-k16-r4-s": _sparse("theia", 16, 4, dense_refresh=8),
    "theia-k16-r6": _sparse("theia", 16, 6),
    "hyperion-k32-r1": _sparse("hyperion", 32, 1),
    "hyperion-k24-r3": _sparse("hyperion", 24, 3),
    "hyperion-k16-r3": _sparse("hyperion", 16, 3),
    "hyperion-k16-r3-s": _sparse("hyperion", 16, 3, dense_refresh=8),
    "hyperion-k16-r4": _sparse("hyperion", 16, 4),
}


class GraphMachineConfig(PreTrainedConfig):
    """Qwen3-shaped language model in which some layers are sparse (GM-2, arXiv 2609.02881, section 4).

    Args:
        num_hidden_layers: Sparse and dense layers together.
        num_sparse_layers: How many are sparse; both kinds are interleaved evenly.
        num_edges: Edges per token, k.
        num_referrals: Referrals per sparse layer; a layer that is first has none.
        budgets: Pointers of stored edges, the two legs of a referral, and attention, (s1, s2, s3, s4).
        input_refresh: How many initial edges every referral but the first of the network sees again.
        dense_refresh: How many edges each dense layer hands to the referrals after it.
        realign: Whether attention writes its pointers back into the edges; needs s1 = s4.
        temperature_kind: "softplus" or "exponential".
        kwargs: What every Hugging Face configuration takes.
    """

    model_type = "graph_machine"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # noqa: RUF012

    def __init__(
        self,
        vocab_size: int = 151_936,
        hidden_size: int = 1024,
        intermediate_size: int = 3072,
        num_hidden_layers: int = 28,
        num_sparse_layers: int = 21,
        num_attention_heads: int = 16,
        num_key_value_heads: int = 8,
        head_dim: int = 128,
        num_edges: int = 24,
        num_referrals: int = 3,
        budgets: tuple[int, int, int, int] | list[int] = (2, 4, 4, 2),
        input_refresh: int = 8,
        dense_refresh: int = 0,
        realign: bool = True,
        temperature_kind: TemperatureKind = "softplus",
        rms_norm_eps: float = 1e-6,
        rope_theta: float = 1e6,
        max_position_embeddings: int = 40_960,
        initializer_range: float = 0.02,
        tie_word_embeddings: bool = True,
        use_cache: bool = True,
        pad_token_id: int | None = None,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_sparse_layers = num_sparse_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.num_edges = num_edges
        self.num_referrals = num_referrals
        self.budgets = list(budgets)
        self.input_refresh = input_refresh
        self.dense_refresh = dense_refresh
        self.realign = realign
        self.temperature_kind: TemperatureKind = temperature_kind
        self.rms_norm_eps = rms_norm_eps
        self.rope_theta = rope_theta
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.use_cache = use_cache
        self._check()
        super().__init__(
            tie_word_embeddings=tie_word_embeddings,
            pad_token_id=pad_token_id,
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            **kwargs,
        )

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> "GraphMachineConfig":
        """One of the twelve published models, such as ``"theia-k24-r3"`` or ``"qwen3"``.

        Raises:
            ValueError: If there is no model of that name.
        """
        if name.lower() not in PRESETS:
            raise ValueError(f"GraphMachineConfig: no preset {name!r}; there are {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name.lower()], **overrides})

    def _check(self) -> None:
        if not 0 <= self.num_sparse_layers <= self.num_hidden_layers:
            raise ValueError(
                f"GraphMachineConfig: 'num_sparse_layers' is {self.num_sparse_layers}, "
                f"expected 0 to num_hidden_layers={self.num_hidden_layers}"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"GraphMachineConfig: {self.num_attention_heads} heads are not a multiple of {self.num_key_value_heads}"
            )
        if len(self.budgets) != 4 or min(self.budgets) < 1:
            raise ValueError(f"GraphMachineConfig: 'budgets' is {self.budgets}, expected four positive numbers")
        if self.realign and self.budgets[0] != self.budgets[3]:
            raise ValueError(f"GraphMachineConfig: realignment needs s1 = s4, got budgets {self.budgets}")
        if self.input_refresh > self.num_edges:
            raise ValueError(
                f"GraphMachineConfig: 'input_refresh' is {self.input_refresh} "
                f"but there are only num_edges={self.num_edges} initial edges"
            )
        if self.dense_refresh > self.num_attention_heads:
            raise ValueError(
                f"GraphMachineConfig: 'dense_refresh' is {self.dense_refresh} "
                f"but there are only {self.num_attention_heads} heads"
            )

    @property
    def sparse_layers(self) -> list[bool]:
        """Which layers are sparse: member i of n of a kind stands at (2i+1)/2n, and sparse comes first on ties."""
        counts = {"sparse": self.num_sparse_layers, "dense": self.num_hidden_layers - self.num_sparse_layers}
        place = [(Fraction(2 * i + 1, 2 * n), kind == "dense") for kind, n in counts.items() for i in range(n)]
        return [not dense for _, dense in sorted(place)]

    def refresh_counts(self, layer: int) -> list[tuple[int, int]]:
        """For each referral of a layer, the number of input-refresh and dense-refresh edges it takes."""
        kinds = self.sparse_layers
        if layer == 0 or not kinds[layer]:
            return []
        first = not any(kinds[1:layer])  # this layer holds the network's first referral
        dense = self.dense_refresh if not all(kinds[:layer]) else 0
        return [(0 if first and r == 0 else self.input_refresh, dense) for r in range(self.num_referrals)]
