#!/usr/bin/env bash
#SBATCH --job-name=train --nodes=4 --output=train.log
# The trainer writes its log; `fleetsim watch` reads it on the first node, says when its verdict changes, and ends with the job.
set -euo pipefail
fleetsim watch --log train.log --every 60s 2> fleetsim.log &
watcher=$!
trap 'kill "$watcher"' EXIT
srun "$@"
