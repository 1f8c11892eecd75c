#!/usr/bin/env bash
# The training-free localizer on a development set of real video in the VQ2D schema (docs/results.md).
#   runs/training_free.sh FOLDER [cuda]      FOLDER holds annotations.json, absent.json, videos/, queries/
set -euo pipefail
set_folder=$1 device=${2:-cpu}
python benchmarks/choose_block.py --annotations "$set_folder/annotations.json" \
    --absent "$set_folder/absent.json" --videos "$set_folder/videos" --device "$device"
lastseen evaluate --annotations "$set_folder/annotations.json" --absent "$set_folder/absent.json" \
    --videos "$set_folder/videos" --out training_free_predictions.json \
    --weights training-free --device "$device"
