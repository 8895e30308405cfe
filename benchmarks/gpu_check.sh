#!/usr/bin/env bash
# What can only be checked on a machine with a CUDA device: recording there changes nothing, finds what
# it should, and what it costs. Prints one line a check and exits with the number of those that failed.
#
#     benchmarks/gpu_check.sh            # in an environment with a CUDA build of torch
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' || {
    echo "gpu_check.sh: torch sees no CUDA device here" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # NAME EXPECTED_STATUS COMMAND...
    local name=$1 expected=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -eq "$expected" ]; then
        echo "ok      $name"
    else
        echo "FAILED  $name: exit status $status, expected $expected"
        tail -n 5 "$work/out" "$work/err"
        failed=$((failed + 1))
    fi
}

for precision in float32 float16 graph; do
    run() { tp-record -o "$work/$1.trace" --overwrite -- gpu_training.py "${@:2}"; }
    python gpu_training.py --precision "$precision" --weights "$work/plain" >"$work/plain.txt"
    run a --precision "$precision" --weights "$work/recorded" >"$work/recorded.txt"
    check "$precision: recording leaves the weights as they are" 0 cmp "$work/plain" "$work/recorded"
    check "$precision: recording leaves stdout as it is" 0 cmp "$work/plain.txt" "$work/recorded.txt"
    run b --precision "$precision"
    check "$precision: two equal runs pass" 0 tp-diff "$work/a.trace" "$work/b.trace"
    [ "$precision" = graph ] && continue
    run c --precision "$precision" --late-clip
    check "$precision: a fault is found" 1 tp-diff "$work/a.trace" "$work/c.trace"
done

python gpu_training.py --cost >"$work/plain.cost"
for capture in digest sketch; do
    tp-record --capture "$capture" -o "$work/cost.trace" --overwrite -- gpu_training.py --cost \
        >"$work/$capture.cost"
    python - "$capture" "$work/plain.cost" "$work/$capture.cost" <<'EOF'
import sys

name, plain, recorded = sys.argv[1:]
plain, recorded = (float(open(path).read()) for path in (plain, recorded))
print(f"        {name}: {recorded:.2f} ms a step, {plain:.2f} ms without: {recorded / plain:.2f}x")
EOF
done
exit "$failed"
