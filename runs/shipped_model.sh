#!/usr/bin/env bash
# From asset packs to the shipped model and its rule, on one GPU: every number of steps, every seed.
#
#     bash runs/shipped_model.sh PACKS REAL_DEV BACKBONE OUT
#
# PACKS is the folder of asset packs, REAL_DEV the development set of real video, BACKBONE a ViT-S/14 with
# registers that begins the backbone stage. Rooms of seed 0, the panned sets and real_dev choose; rooms of
# seeds 3 and 4 are for the end alone. Every step goes on where a stopped one was.
set -euo pipefail
cd "$(dirname "$0")/.."
packs=$1 real=$2 backbone=$3 out=$4
model=$out/run/heads/shipped

lastseen synth "$out/val" --split val --episodes 24 --seed 0 --fps 5 --assets "$packs" --workers 11
[ -e "$out/real_pan/annotations.json" ] || python runs/make_real_pan.py --real-dev "$real" --out "$out/real_pan"
[ -e "$out/photo_pan/annotations.json" ] || python runs/make_photo_pan.py --assets "$packs" --out "$out/photo_pan"
sets=(--set "$out/val" --set "$out/real_pan" --set "$out/photo_pan")

# More than 11 processes that render do not fit into 141 GB of GPU memory.
python runs/train_synth.py --packs "$packs" --start "$backbone" --walks "$out/walks" --out "$out/run" \
    --workers 11 "${sets[@]}"
answers=("$out"/run/heads/{val,real_pan,photo_pan}@{photo,margin,crop}.json.gz)
python runs/fit_rule.py --model "$model" --workers 8 extraction "${answers[@]}"
python runs/refinement.py --weights "$model" "${sets[@]}" --set "$real" --out "$out/refined" \
    --ask photo --ask margin --ask crop
refined=("$out"/refined/{val,real_pan,photo_pan}-{photo,margin,crop}@all.json.gz)
python runs/fit_rule.py --model "$model" confidence "${refined[@]}"
python runs/refinement.py --weights "$model" --table --out "$out/refined"
