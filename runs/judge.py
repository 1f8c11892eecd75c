"""Reports and the rule of what runs/train_synth.py made: python runs/judge.py runs/shipped/heads

Reads val@photo.json.gz and, if there, real_dev@photo.json.gz. The rule is fitted on val
and goes into the folder `shipped`, if there is one. Answers are without refinement here:
`lastseen calibrate MODEL` fits the rule with it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lastseen.evaluate.calibration import calibration_error, fit_rule, held_out, load_answered, outcome
from lastseen.evaluate.encoded import cross_fitted, report
from lastseen.rule import Rule
from lastseen.weights import save_rule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    val = load_answered(folder / "val@photo.json.gz")
    rule = fit_rule(val)
    if (folder / "shipped").is_dir():
        save_rule(rule, folder / "shipped")
    print(rule)
    reports = {"val, rules of the other half": cross_fitted(val)}
    errors = {"val": calibration_error(*held_out(val, Rule()))}
    if (folder / "real_dev@photo.json.gz").exists():
        real = load_answered(folder / "real_dev@photo.json.gz")
        reports["real, rule of val"] = report(real, rule)
        errors["real"] = calibration_error(*outcome(real, rule))
    for name, scores in reports.items():
        print(f"{name}\n{scores.to_text()}")
    print("calibration error", errors)
    written = {name: scores.to_dict() for name, scores in reports.items()} | {"calibration_error": errors}
    (folder / "reports.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
