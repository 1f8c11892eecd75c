"""The rule of a model, fitted on several sets and ways of asking together, each of which counts alike.

    python runs/fit_rule.py --model MODEL extraction runs/shipped/heads/val@photo.json.gz ...
    python runs/refinement.py --weights MODEL --set val --set real_pan --out refined
    python runs/fit_rule.py --model MODEL confidence refined/val-photo@all.json.gz ...

The extraction is fitted on answers without refinement (runs/train_synth.py keeps them); steps of refinement
are those of the rule in the model's folder, or of the bundled one. The confidence and its threshold are
fitted on what was refined under it. Both write rule.json into the model's folder.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import chain
from pathlib import Path

from lastseen.evaluate.calibration import (
    calibration_error,
    fit_confidence,
    fit_extraction,
    fit_threshold,
    held_out,
    load_answered,
)
from lastseen.weights import bundled_model, load_rule, save_rule


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("part", choices=("extraction", "confidence"))
    parser.add_argument("answers", type=Path, nargs="+", help="one file for each set and way of asking")
    arguments = parser.parse_args()
    has_rule = (arguments.model / "rule.json").exists()
    rule = load_rule(arguments.model if has_rule else bundled_model())
    sets = [load_answered(path) for path in arguments.answers]
    if arguments.part == "extraction":
        rule = replace(rule, extraction=fit_extraction(sets, rule, workers=arguments.workers))
    else:
        together = list(chain.from_iterable(sets))
        rule = fit_threshold(together, fit_confidence(together, rule))
        print("calibration error, videos left out:", calibration_error(*held_out(together, rule)))
    save_rule(rule, arguments.model)
    print(rule)


if __name__ == "__main__":
    main()
