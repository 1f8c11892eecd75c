"""The soak: damaged input, kills, floods and full disks, thousands of seeded cases (docs/reliability.md).

    python -m soak --seed 0 --out soak-report.json

    mutate.py    seeded damage to bytes and to JSON; all kinds use it
    case.py      what one case knows, and what counts as a plain refusal
    worker.py    runs cases in a process of its own
    harness.py   gives cases to workers; watches time, memory and crashes
    report.py    the table at the end, as text, JSON and in the documentation
    samples.py   sound files that are then damaged: videos, pictures, a tiny model
    programs.py  real `lastseen` processes
    client.py    a real `lastseen serve`, and requests to it
    media.py pictures.py indexes.py weights.py texts.py kills.py servers.py disks.py   one kind each

A kind is a module with NAME, CASES, LIMIT_S, `prepare(folder)` and `run(case)`. `run` returns NORMAL or
REFUSED; any exception that is not a LastSeenError of one line is a failure.
"""
