"""Fails when a test was skipped for a reason that is not on the list."""

import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = ("needs a CUDA device", "torch-sparse is not installed", "triton is not installed")

skips = [
    (case.get("classname"), case.get("name"), skip.get("message") or "")
    for case in ElementTree.parse(sys.argv[1]).iter("testcase")
    for skip in case.iter("skipped")
]
wrong = [skip for skip in skips if not any(reason in skip[2] for reason in ALLOWED)]
for place, name, reason in wrong:
    sys.stderr.write(f"skipped: {place}::{name}: {reason}\n")
sys.exit(f"{len(wrong)} tests were skipped for reasons not in {ALLOWED}" if wrong else 0)
