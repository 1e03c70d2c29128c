"""What importing the package costs a PyG script."""

import statistics
import subprocess
import sys

SCRIPT = """
import time
import torch_geometric
start = time.process_time()
import pyg_textgraph
package = time.process_time()
import pyg_textgraph.data, pyg_textgraph.ops, pyg_textgraph.transforms, pyg_textgraph.sampling
print(package - start, time.process_time() - start)
"""


def test_import_adds_little_to_torch_geometric() -> None:
    """Processor time, which a busy machine changes little; median of three processes."""
    runs = [subprocess.check_output([sys.executable, "-c", SCRIPT], text=True).split() for _ in range(3)]
    package, with_transforms = (statistics.median(map(float, column)) for column in zip(*runs, strict=True))
    assert package < 0.3
    assert with_transforms < 0.6
