"""Writes the file that WordNetVerbs ships: python tools/build_wordnet_verbs.py FOLDER_WITH_WORDNET_FILES"""

import sys
from pathlib import Path

from pyg_textgraph.datasets._synsets import Synsets

TO = Path(__file__).parents[1] / "pyg_textgraph" / "datasets" / "raw" / "wordnet_verbs.npz"

if __name__ == "__main__":
    Synsets.from_folder(sys.argv[1]).verbs().save(TO)
