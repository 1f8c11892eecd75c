#!/usr/bin/env bash
# From asset packs to a calibrated model, as the shipped one was made (docs/results.md).
#   runs/train_synth.sh PACKS OUT [REAL]     REAL: a development set of real video in the VQ2D schema
set -euo pipefail
packs=$1 out=$2 real=${3:-} workers=$(nproc)
data="--set data.assets=$packs --set data.folder=$out/walks --set data.workers=$workers"

lastseen synth "$out/val" --split val --episodes 24 --seed 0 --fps 5 --assets "$packs" --workers "$workers"
# shellcheck disable=SC2086
lastseen train "$out/backbone" --recipe backbone_small $data
# shellcheck disable=SC2086
lastseen train "$out/heads" --recipe synth_small $data --set backbone="$out/backbone/backbone.safetensors"
lastseen calibrate "$out/heads/model" --annotations "$out/val/annotations.json" \
    --absent "$out/val/absent.json" --videos "$out/val/videos"
for set_folder in "$out/val" ${real:+"$real"}; do
    lastseen evaluate --method vqloc --weights "$out/heads/model" --annotations "$set_folder/annotations.json" \
        --absent "$set_folder/absent.json" --videos "$set_folder/videos" --out "$out/$(basename "$set_folder").json"
done
