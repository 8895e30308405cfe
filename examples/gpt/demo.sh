#!/usr/bin/env bash
# Record a training, resume it once with a forgotten scheduler and once as it should be, compare.
#
#     demo.sh [FOLDER]      FOLDER (default: demo, beside this script) keeps the traces
#
# Needs python (with torch), tp-record and tp-diff on PATH, and less than two minutes on two cores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ $# -gt 0 ]]; then train=$here/train.py; else train=../train.py; fi
mkdir -p "${1:-$here/demo}"
cd "${1:-$here/demo}"
rm -f whole.trace buggy.trace fixed.trace half.pt log.txt
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # a model this small is no faster on more

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
train() { # run a command and show only the last line of its output
    echo "\$ $*"
    "$@" >log.txt 2>&1 || { cat log.txt; exit 1; }
    tail -n 1 log.txt
}
compare() { # compare STATUS COMMAND...: the demo fails where a verdict is not the one it explains
    local wanted=$1 got=0
    shift
    echo "\$ $*"
    "$@" || got=$?
    if [[ $got != "$wanted" ]]; then
        echo "demo: exit status $got instead of $wanted" >&2
        exit 1
    fi
}

say "1. A small GPT trains for 24 steps without a break. tp-record writes all it does to a trace."
train tp-record -o whole.trace -- "$train"

say "2. The same training stops after 12 steps and saves a checkpoint (not recorded)."
train python "$train" --stop-at 12 --save half.pt

say "3. It resumes, but the scheduler is not restored. Nothing complains."
train tp-record -o buggy.trace -- "$train" --resume half.pt --forget scheduler

say "4. Does the resumed run do what the whole run did from step 12 on? No: here is where it parts."
compare 1 tp-diff --align resume whole.trace buggy.trace

say "5. With the scheduler restored, the run resumes as it should."
train tp-record -o fixed.trace -- "$train" --resume half.pt

say "6. Now every value that was recorded is equal, bit for bit."
compare 0 tp-diff --align resume whole.trace fixed.trace

say "The traces are in $PWD."
