#!/usr/bin/env bash
# Measures three model shapes with real vLLM on this machine's GPU, fits and checks their profiles, and writes the page
# that compares predicted with measured. Half an hour on one GPU; interrupted, it goes on where it stopped. It commits
# nothing. usage: calibration/measure.sh [SHAPE...]   (PYTHON=python3 says which Python has vLLM and fleetsim)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
shapes=("$@")
[ ${#shapes[@]} -gt 0 ] || shapes=(qwen2.5-1.5b qwen2.5-7b llama-3.1-8b)
mkdir -p calibration/profiles calibration/raw
for shape in "${shapes[@]}"; do
  raw=calibration/raw/$shape.raw.jsonl
  if [ ! -e "$raw.gz" ]; then
    resume=()
    [ ! -e "$raw" ] || resume=(--resume)
    "$python" -m fleetsim calibrate --model "calibration/models/$shape" --max-num-seqs 1024 --max-model-len 32768 \
      --measure-sync --measure-only -o "calibration/raw/$shape.profile.json" "${resume[@]}"
  fi
  "$python" -m fleetsim calibrate --from "$raw.gz" -o "calibration/profiles/$shape.json" --force
done
"$python" docs/make_measured.py
