#!/usr/bin/env bash
# On a GPU, kernel tests and then the Graph Machine, whole training steps of GTLM and graph attention against their
# peers; under 8 minutes, results in $OUT (build/gpu). Without a GPU it says so and stops. With --dry: tiny shapes on the
# CPU, no tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OUT="${OUT:-build/gpu}" PYTHONPATH="$PWD" TRITON_DEFAULT_FP_FUSION=1
python="${PYTHON:-python}"
mkdir -p "$OUT"

# what is left of 8 minutes, at most so many seconds
left() { local rest=$((470 - SECONDS)); echo $((rest < $1 ? rest : $1)); }

# a benchmark that runs out of time has kept the cases that it finished
within() {
  local code=0 limit
  limit=$(left "$1")
  if [[ $limit -lt 10 ]]; then echo "no time left for ${*:4:1}"; return; fi
  timeout "$limit" "${@:2}" || code=$?
  if [[ $code -eq 124 ]]; then echo "cut short after $limit s"; else return "$code"; fi
}

# no numbers from kernels that are wrong
tested() { timeout "$1" "$python" -m pytest -m kernels "tests/ops/test_$2.py" 2>&1 | tee "$OUT/$2.txt"; }

dry=$([[ " $* " == *" --dry "* ]] && echo yes || echo no)
if [[ $dry == no && $("$python" -c 'import torch; print(torch.cuda.is_available())') == False ]]; then
  echo "no GPU here: nothing to measure (--dry runs tiny shapes on the CPU)"
  exit 0
fi
wrong=0
if [[ $dry == yes ]] || tested 90 triton_pointers; then
  within 60 "$python" -m benchmarks.gpu.graph_machine --out "$OUT" "$@"
else
  wrong=1
fi
if [[ $dry == yes ]] || tested 190 triton; then
  within 130 "$python" -m benchmarks.gpu.model --out "$OUT" "$@"
  within 150 "$python" -m benchmarks.gpu.run --out "$OUT" "$@"
else
  wrong=1
fi
exit $wrong
