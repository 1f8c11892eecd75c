"""The cost model: its units, its simulator against queueing theory, and the page that shows both."""

import math
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.scale import fleets
from benchmarks.scale.constants import KEEPS, Given, Measured, Samples, corpora
from benchmarks.scale.costs import Model, expected_slowest
from benchmarks.scale.simulate import (
    Fleet,
    Simulation,
    constant,
    exponential,
    percentile,
    resampled,
    with_stragglers,
)
from lastseen.search.run import CANDIDATES

ROOT = Path(__file__).parents[1]
SHAPE = (0.8, 1.0, 1.7)


@pytest.fixture(scope="module")
def model():
    """Round numbers: an hour is 18,000 frames."""
    measured = Measured(
        full_frame_bytes=1e6,
        compact_frame_bytes=1e4,
        small_frame_bytes=5e4,
        gpu_frames_s=1_000,
        decode_frames_core_s=20,
        gpu_exhaustive_hour_s=0.5,
        clip_core_s=2.0,
        candidates=24,
        clip_frames=40,
        wrong_later_an_hour=0.5,
    )
    samples = Samples(
        {
            "first_stage": {"score_frame_core_s": {"compact": 1e-4, "small": 3e-4, "unpacking": 0.02}},
            "encode_query_core_s": 0.5,
            "index_frame_core_s": 0.1,
            "ask_wall_s": SHAPE,
        }
    )
    given = Given(
        gpu_hour_usd=2.0,
        core_hour_usd=0.1,
        gb_month_usd=0.05,
        cores_a_machine=10,
        memory_gb=18,
        disk_gb_s=0.1,
        video_gb_an_hour=2,
        round_trip_s=0.01,
        merge_shard_s=0.001,
        target_s=1.8,
    )
    return Model(measured, samples, given)


def test_bytes_frames_and_seconds_become_gigabytes_hours_and_dollars(model):
    assert [model.index_gb(keep, 100) for keep in KEEPS] == pytest.approx([1_818, 18, 90])
    assert model.gpu_hours(200) == pytest.approx(1)  # 18 GPU-seconds an hour of video
    assert model.decode_core_hours(4) == pytest.approx(1)  # 900 core-seconds
    assert model.cpu_core_hours(4) == pytest.approx(3)  # and 1,800 to encode
    assert model.index_usd(200) == pytest.approx(2 + 50 * 0.1)
    assert model.index_without_gpu_usd(4) == pytest.approx(0.3)
    assert model.store_usd("full", 2) == pytest.approx(36.36 * 0.05)
    assert model.store_usd("compact", 100) == pytest.approx((18 + 200) * 0.05)
    assert model.store_usd("small", 100) == pytest.approx(90 * 0.05)  # needs no video
    assert model.fleet_usd(1) == pytest.approx(730)
    assert model.exhaustive_gpu_s(3) == pytest.approx(1.5)
    assert model.decoding_cores_a_gpu() == pytest.approx(50)


def test_a_question_takes_its_parts_one_after_the_other(model):
    hours, machines = 1_000, 10
    assert model.machines_for_memory("full", hours) == machines  # which keeps tokens of compact
    assert (
        model.machines_for_memory("full", hours + 1) == 11 and model.machines_for_memory("small", hours) == 50
    )
    assert model.machines_for_target("compact", hours) == 100  # 1,800 core-seconds on ten cores in 1.8 s
    assert model.scan_median_s("full", hours, machines) == pytest.approx(18)
    assert model.scan_median_s("small", hours, machines) == pytest.approx(54)
    clip_s = 0.2 + 40 * 1e6 / 1e9 / 0.1  # the exact model, reading from disk
    assert model.clip_s("full") == pytest.approx(clip_s)
    assert model.clip_s("compact") == pytest.approx((2 + 2 + 4) / 10)  # the model, decoding, encoding
    assert model.clip_s("small") == pytest.approx((2 + 40 * 0.02) / 10)
    whole = 0.5 + 18 * expected_slowest(SHAPE, machines) + 0.01 + 10 * 0.001 + 3 * clip_s + 0.01
    assert model.question_s("full", hours, machines, SHAPE) == pytest.approx(whole)
    core_s = 0.5 + 1_800 + 24 * 8
    assert model.question_usd("compact", hours) == pytest.approx(core_s / 3600 * 0.1)
    assert model.touched_share_for_target("compact", hours) == pytest.approx(0.1)
    assert model.hours_until_wrong() == pytest.approx(1)


def test_an_hour_on_two_cores_takes_about_what_was_measured():
    """17 s, with 24 to 60 candidates (docs/indexing.md)."""
    given = Given(cores_a_machine=2)
    seconds = [
        Model(Measured(candidates=count), Samples.read(), given).question_s("full", 1, 1, (1.0,))
        for count in (24, 60)
    ]
    assert [round(second) for second in seconds] == [9, 21]  # as docs/scale.md says


def test_what_the_product_says_of_itself_is_what_the_model_takes():
    measured, samples = Measured(), Samples.read()
    assert samples.raw["bytes_a_frame"] == {
        "fine": measured.full_frame_bytes,
        "compact": measured.compact_frame_bytes,
    }
    assert measured.candidates == CANDIDATES
    channels = 384  # of the bundled model
    assert samples.stage["bytes_a_frame"]["small"] == measured.small_frame_bytes
    per_token = samples.stage["query_vectors"]["all"] * channels * 2
    operations = Model(measured, samples, Given()).scan_operations(1)
    assert operations == pytest.approx(18_000 * samples.stage["tokens_a_frame"] * per_token)


def test_a_question_of_one_of_many_people_touches_only_what_is_theirs(model):
    hour, person, people, million = corpora(Given(hours_a_day=10))
    assert (hour.touched_hours, person.touched_hours, million.touched_hours) == (1, 3_650, 1e6)
    assert people.stored_hours == 1_000 * person.stored_hours
    assert people.touched_hours == person.touched_hours
    least = model.machines_for_memory("compact", people.stored_hours)
    assert model.machines_serving("compact", people) == least
    quick = model.machines_for_target("compact", person.touched_hours)
    assert model.machines_serving("compact", person) == quick > model.machines_for_memory("compact", 3_650)


def test_the_expected_slowest_is_that_of_draws():
    rng, draw = random.Random(0), resampled(SHAPE, 1.0)
    for machines in (1, 2, 5):
        drawn = [max(draw(rng) for _ in range(machines)) for _ in range(20_000)]
        assert expected_slowest(SHAPE, machines) == pytest.approx(sum(drawn) / len(drawn), rel=0.01)
    assert expected_slowest(SHAPE, 10_000) == pytest.approx(max(SHAPE))


def mean(values):
    return sum(values) / len(values)


def one_queue(scan, load):
    return Simulation(Fleet(shards=1, scan=scan), load, 20_000, seed=1).run()


def test_one_machine_is_the_queue_with_exponential_service():
    """M/M/1: the time in the system is exponential with rate 1 - load."""
    seconds = one_queue(exponential(1.0), 0.6)
    assert mean(seconds) == pytest.approx(1 / 0.4, rel=0.05)
    for share in (0.5, 0.95, 0.99):
        assert percentile(seconds, share) == pytest.approx(-math.log(1 - share) / 0.4, rel=0.08)


def test_one_machine_is_the_queue_with_constant_service():
    """M/D/1: waiting load / (2 (1 - load)), half of the former."""
    assert mean(one_queue(constant(1.0), 0.7)) == pytest.approx(1 + 0.7 / (2 * 0.3), rel=0.05)


def test_without_queues_a_fan_out_takes_as_long_as_its_slowest_shard():
    """The expected maximum of n exponentials is the n-th harmonic number."""
    fleet = Fleet(shards=30, scan=exponential(1.0))
    seconds = Simulation(fleet, 1e-4, 2_000, seed=2).run()
    assert mean(seconds) == pytest.approx(sum(1 / n for n in range(1, 31)), rel=0.03)


def test_stages_follow_each_other():
    fleet = Fleet(shards=4, scan=constant(2.0), merge_s=0.5, candidates=1, exact=constant(1.0))
    assert Simulation(fleet, 1e-4, 20).run() == pytest.approx([3.5] * 18)
    many = replace(fleet, shards=1, candidates=3)  # one machine: one candidate after the other
    assert Simulation(many, 1e-4, 20).run() == pytest.approx([5.5] * 18)


def test_a_hedged_request_takes_the_faster_of_two():
    """The minimum of two exponentials; after a delay, only what is left of them."""
    at_once = Fleet(shards=1, scan=exponential(1.0), replicas=2, hedge_after_s=0.0)
    assert mean(Simulation(at_once, 1e-4, 5_000).run()) == pytest.approx(0.5, rel=0.05)
    later = replace(at_once, hedge_after_s=1.0)
    expected = 1 - math.exp(-1) / 2  # the second half of the wait is half as long
    assert mean(Simulation(later, 1e-4, 6_000).run()) == pytest.approx(expected, rel=0.05)


def test_a_copy_that_still_waits_when_its_task_is_done_is_not_served():
    fleet = Fleet(shards=1, scan=constant(1.0), replicas=2, hedge_after_s=0.5)
    simulation = Simulation(fleet, 1e-4, 100)
    assert simulation.run() == pytest.approx([1.0] * 90)
    assert simulation.busy_s == pytest.approx(200)  # idle replicas serve the copy
    waits = Fleet(shards=1, scan=constant(1.0), replicas=2, hedge_after_s=0.01)
    busy = Simulation(waits, 50.0, 1_000)  # all wait in both queues
    busy.run()
    assert busy.busy_s < 2_000


def test_hedging_helps_while_there_is_room_and_feeds_the_queue_when_there_is_none():
    plain = Fleet(shards=4, scan=with_stragglers(constant(1.0), 0.005, 20), replicas=2)
    sent = replace(plain, hedge_after_s=1.5)
    served = replace(sent, hedge_from_service=True)

    def p99_s(fleet, questions_s):
        return percentile(Simulation(fleet, questions_s, 2_000, seed=5).run(), 0.99)

    calm = p99_s(plain, 0.05)
    assert p99_s(sent, 0.05) < 0.5 * calm and p99_s(served, 0.05) < 0.5 * calm
    busy = p99_s(plain, 1.6)
    assert p99_s(sent, 1.6) > 1.5 * busy > p99_s(served, 1.6)


def test_replicas_shorten_the_queue_and_stragglers_lengthen_the_tail():
    plain = Fleet(shards=5, scan=exponential(1.0))
    p99 = percentile(Simulation(plain, 0.7, 3_000).run(), 0.99)
    assert percentile(Simulation(replace(plain, replicas=2), 1.4, 3_000).run(), 0.99) < 0.8 * p99
    slow = replace(plain, scan=with_stragglers(exponential(1.0), 0.01, 20))
    assert percentile(Simulation(slow, 0.7, 3_000).run(), 0.99) > 1.5 * p99


def test_the_work_offered_is_the_work_done():
    fleet = Fleet(shards=8, scan=resampled(SHAPE, 0.5), candidates=4, exact=constant(0.1))
    simulation = Simulation(fleet, 1.0, 3_000, seed=4)
    assert len(simulation.run()) == 2_700
    offered = 0.5 * mean(SHAPE) + 4 / 8 * 0.1
    assert simulation.utilization() == pytest.approx(offered, rel=0.05)


def test_percentiles_are_values_that_occurred():
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert percentile([3.0], 0.99) == 3


def test_a_simulated_row_comes_out_again():
    model = Model(Measured(), Samples.read(), Given())
    results = fleets.read()
    assert tuple(result.case for result in results) == fleets.CASES
    row = next(r for r in results if not r.case.for_target and r.case.load == min(fleets.LOADS))
    assert fleets.simulated(model, row.case) == row, "run: python -m benchmarks.scale --simulate --out ..."
    by_case = {result.case: result for result in results}
    for result in results:  # more load never helps
        busier = by_case.get(replace(result.case, load=0.9))
        assert result.p50_s <= result.p95_s <= result.p99_s and result.p50_s <= busier.p50_s


def test_the_page_and_its_plots_are_what_the_script_computes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_scale import PAGE, made

    for path, text in made().items():
        assert path.read_text() == text, "run: python docs/make_scale.py"
        if path.suffix == ".svg":
            assert "prefers-color-scheme: dark" in text
            ElementTree.fromstring(text)
    assert len(re.findall("<!-- scale: begin", PAGE.read_text())) >= 4


def test_prices_of_ones_own_change_the_table():
    def said(*options):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale", *options], cwd=ROOT, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    status, text = said("--gb-month-usd", "1")
    assert status == 0 and "| `full`, a month | $15 |" in text
    status, text = said("--gpu-hour-usd", "-3")
    assert status == 2 and "-3 is not a positive number" in text
