#!/usr/bin/env bash
# Kernel tests on a GPU, then graph attention against its peers; under 8 minutes, results in $OUT (build/gpu).
# With --dry: tiny shapes on the CPU, no tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OUT="${OUT:-build/gpu}" PYTHONPATH="$PWD" TRITON_DEFAULT_FP_FUSION=1
python="${PYTHON:-python}"
mkdir -p "$OUT"
if [[ " $* " != *" --dry "* ]]; then
  # no numbers from kernels that are wrong
  timeout 240 "$python" -m pytest -m kernels tests/ops 2>&1 | tee "$OUT/tests.txt"
fi
timeout 230 "$python" -m benchmarks.gpu.run --out "$OUT" "$@"
