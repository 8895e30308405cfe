#!/usr/bin/env bash
# Record a training, resume it once with a forgotten scheduler and once as it should be, compare.
# Needs python (with torch), tp-record and tp-diff on PATH, and less than two minutes on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONUNBUFFERED=1

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() { # show a command as one would type it in $work, then run it
    local shown="$*"
    printf '$ %s\n' "${shown//"$work/"/}"
    "$@"
}
quietly() { # the same, with only the last line of its output
    local shown="$*" log="$work/log.txt"
    printf '$ %s\n' "${shown//"$work/"/}"
    "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }
    tail -n 1 "$log"
}
expect() { # expect STATUS COMMAND...: the demo fails where a verdict is not the one it explains
    local wanted=$1 got=0
    shift
    run "$@" || got=$?
    if [[ $got != "$wanted" ]]; then
        echo "demo: tp-diff ended with exit status $got instead of $wanted" >&2
        exit 1
    fi
}

say "1. A small GPT trains for 24 steps without a break. tp-record writes all it does to a trace."
quietly tp-record -o "$work/whole.trace" -- train.py

say "2. The same training stops after 12 steps and saves a checkpoint (not recorded)."
quietly python train.py --stop-at 12 --save "$work/half.pt"

say "3. It resumes, but the scheduler is not restored. Nothing complains."
quietly tp-record -o "$work/buggy.trace" -- train.py --resume "$work/half.pt" --forget scheduler

say "4. Does the resumed run do what the whole run did from step 12 on? No, and here is where it parts."
expect 1 tp-diff --align resume "$work/whole.trace" "$work/buggy.trace"

say "5. With the scheduler restored, the run resumes as it should."
quietly tp-record -o "$work/fixed.trace" -- train.py --resume "$work/half.pt"

say "6. Now every value that was recorded is equal, bit for bit."
expect 0 tp-diff --align resume "$work/whole.trace" "$work/fixed.trace"
