#!/usr/bin/env bash
# Kernel tests on a GPU, then whole training steps and graph attention against their peers; under 8 minutes, results in
# $OUT (build/gpu). Without a GPU it says so and stops. With --dry: tiny shapes on the CPU, no tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OUT="${OUT:-build/gpu}" PYTHONPATH="$PWD" TRITON_DEFAULT_FP_FUSION=1
python="${PYTHON:-python}"
mkdir -p "$OUT"

# a benchmark that runs out of time has kept the cases that it finished
within() {
  local code=0
  timeout "$@" || code=$?
  if [[ $code -eq 124 ]]; then echo "cut short after $1 s"; else return "$code"; fi
}

if [[ " $* " != *" --dry "* ]]; then
  if [[ $("$python" -c 'import torch; print(torch.cuda.is_available())') == False ]]; then
    echo "no GPU here: nothing to measure (--dry runs tiny shapes on the CPU)"
    exit 0
  fi
  # no numbers from kernels that are wrong
  timeout 190 "$python" -m pytest -m kernels tests/ops 2>&1 | tee "$OUT/tests.txt"
fi
within 130 "$python" -m benchmarks.gpu.model --out "$OUT" "$@"
within 150 "$python" -m benchmarks.gpu.run --out "$OUT" "$@"
