"""The command line of benchmarks that train models: what they all take, and how they stop."""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyg_textgraph.train import Interrupted


def resumable(doc: str | None, folder: Path | None, smoke: str) -> argparse.ArgumentParser:
    """A parser with --resume, --record, --smoke and --folder.

    Args:
        doc: The script's docstring.
        folder: Default of --folder.
        smoke: What --smoke runs.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run stopped")
    parser.add_argument("--record", action="store_true", help="write the results beside this script")
    parser.add_argument("--smoke", action="store_true", help=f"{smoke}: does everything run?")
    parser.add_argument("--folder", type=Path, default=folder, help="where checkpoints go")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments; the process exits if they ask to record a smoke run."""
    args = parser.parse_args(argv)
    if args.smoke and args.record:
        parser.error("--smoke measures nothing that could be recorded")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # peft uses an old name of theirs
    return args


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C within ends the process, with a word on how to go on."""
    try:
        yield
    except Interrupted as stop:
        print(f"\n{stop}. Go on with --resume.")
        sys.exit(130)
