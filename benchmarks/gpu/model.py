"""Times a whole training step of GTLM on a GPU against the plain causal language model's on the same tokens.

Random weights in the shape of Llama-3.2-1B, bfloat16, LoRA on all seven projections, all three biases. Both compute
logits only where tokens are supervised. Transforms are not counted; packing and the biases are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch_geometric.data import Batch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.common import Row, Run
from benchmarks.gpu.run import measured
from benchmarks.gpu.script import main
from benchmarks.step_cost.run import Case, gtlm_loss, step
from pyg_textgraph.nn import GTLM
from pyg_textgraph.nn.bias import BIASES

LLAMA_1B = {
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "tie_word_embeddings": True,
}  # fmt: skip
TINY = LLAMA_1B | {
    "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
# the first two are shapes of GTLM's authors; the third is a batch, the last hides pairs
CASES = (
    Case("gtlm nodes=128 tokens=1024", 1, 128, 8),
    Case("gtlm nodes=512 tokens=4096", 1, 512, 8),
    Case("gtlm graphs=16 nodes=61 tokens=15616", 16, 61, 16),
    Case("khop k=2 nodes=512 tokens=16384", 1, 512, 32, k_hop=2, extra=0.25),
)
DRY = (Case("gtlm graphs=2 nodes=5 tokens=30", 2, 5, 3), Case("khop k=2 nodes=9 tokens=27", 1, 9, 3, k_hop=2))


def decoder(sizes: dict[str, object], device: str, dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(**sizes, attn_implementation="sdpa", dtype=dtype)
    with torch.device(device):
        return LlamaForCausalLM(config).to(dtype)


def lora() -> LoraConfig:
    return LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")


def plain_loss(model: nn.Module, batch: Batch, dtype: torch.dtype) -> Tensor:
    """Graphs of one size are rows; the supervised tokens stand at the same two places of each."""
    ids, labels = (batch[name].view(batch.num_graphs, -1) for name in ("input_ids", "labels"))
    at = torch.nonzero(labels[0] >= 0).view(-1)
    with torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32):  # as in GTLM: adapters are float32
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=at - 1).logits
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels[:, at].flatten())


def steps(case: Case, sizes: dict[str, object], device: str, dtype: torch.dtype) -> dict[str, Run]:
    """Training steps of both models, and of GTLM without its biases: attention in both directions."""
    batch = case.batch().to(device)
    plain = get_peft_model(decoder(sizes, device, dtype), lora()).train()
    out: dict[str, Run] = {"plain": step(plain, partial(plain_loss, plain, batch, dtype))}
    for name, biases in (("gtlm", BIASES), ("no bias", ())):
        model = GTLM(decoder(sizes, device, dtype), lora=lora(), k_hop=case.k_hop, biases=biases).to(device).train()
        out[name] = step(model, partial(gtlm_loss, model, batch))
    return out


def rows_of(case: Case, functions: dict[str, Run], repeats: int) -> list[Row]:
    weights = torch.cuda.memory_allocated() / 2**30  # of all models: they take turns
    seconds, memory = measured(functions, repeats)
    memory = {name: peak - weights for name, peak in memory.items()}
    rows: list[Row] = []
    for name, label in (("gtlm", f"model {case.name}"), ("no bias", f"model no bias {case.name.split(' ', 1)[1]}")):
        for metric, values in (("seconds", seconds), ("peak GiB beyond weights", memory)):
            if name in values and "plain" in values and values[name] == values[name]:  # no memory on a CPU
                row = {"case": label, "metric": metric, "value": values[name]}
                row |= {"peer": "plain causal LM (SDPA), same tokens, labels and LoRA", "peer_value": values["plain"]}
                rows.append(row | {"ratio": values[name] / values["plain"], "repeats": repeats})
    return rows


def cases(dry: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    sizes, device, dtype = (TINY, "cpu", torch.float32) if dry else (LLAMA_1B, "cuda", torch.bfloat16)
    for case in DRY if dry else CASES:
        yield case.name, lambda case=case: rows_of(case, steps(case, sizes, device, dtype), 2 if dry else 10)  # type: ignore[misc]


if __name__ == "__main__":
    main(__doc__, "a tiny model", cases, "model")
