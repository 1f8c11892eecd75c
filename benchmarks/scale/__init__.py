"""What lastseen costs from an hour of video to a million, computed from what was measured on one machine.

    python -m benchmarks.scale                              the table and the simulated latencies
    python -m benchmarks.scale --gpu-hour 2.5 --gb-month .01     with prices of one's own

measured -> costs (formulas) -> simulate (queues) -> report (the text of docs/scale.md)
"""
