"""Questions to many machines, event by event: queues, stragglers, replicas, hedged requests.

    arrive -> a task for every shard -> all done -> merge -> a task for every candidate -> all done

Each shard lies on `replicas` machines; a machine serves one task at a time, in order of arrival. A task goes
to the replica with the fewest tasks. A hedged task that is not done after a while, counted from when it was
sent or from when it was first served, is sent to another replica, too, and the first result counts: a copy
that still waits is dropped, one that is being served is finished.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Draw = Callable[[random.Random], float]
WARM_UP = 0.1  # of the questions, which find empty queues


def exponential(mean_s: float) -> Draw:
    return lambda rng: rng.expovariate(1 / mean_s)


def constant(seconds: float) -> Draw:
    return lambda rng: seconds


def resampled(shape: Sequence[float], median_s: float) -> Draw:
    """One of the measured samples at random, scaled to a median."""
    return lambda rng: shape[int(rng.random() * len(shape))] * median_s


def with_stragglers(draw: Draw, share: float, factor: float) -> Draw:
    """Now and then `factor` times as long."""
    return lambda rng: draw(rng) * (factor if rng.random() < share else 1.0)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    shards: int
    scan: Draw
    replicas: int = 1
    hedge_after_s: float | None = None
    hedge_from_service: bool = False
    merge_s: float = 0.0
    candidates: int = 0  # tasks of the second stage, each to a shard at random
    exact: Draw = field(default=constant(0.0))


@dataclass(eq=False)
class Question:
    arrived_s: float
    open_tasks: int
    exact_stage: bool = False


@dataclass(eq=False)
class Task:
    question: Question
    shard: int
    draw: Draw
    hedged: bool = False  # a copy will be sent if it takes too long
    done: bool = False


@dataclass(eq=False)
class Machine:
    waiting: deque[Task] = field(default_factory=deque)
    serving: Task | None = None

    @property
    def load(self) -> int:
        return len(self.waiting) + (self.serving is not None)


class Simulation:
    """`run` returns the seconds that each question took, in the order in which they were answered."""

    def __init__(self, fleet: Fleet, questions_s: float, count: int, seed: int = 0) -> None:
        self.fleet, self.rng = fleet, random.Random(seed)
        self.machines = [[Machine() for _ in range(fleet.replicas)] for _ in range(fleet.shards)]
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.now_s, self.events_so_far, self.busy_s = 0.0, 0, 0.0
        self.taken: list[tuple[float, float]] = []  # arrived, seconds
        at = 0.0
        for _ in range(count):
            at += self.rng.expovariate(questions_s)
            self._later(at, self._arrive)

    def run(self) -> list[float]:
        while self.events:
            self.now_s, _, happen = heapq.heappop(self.events)
            happen()
        by_arrival = sorted(self.taken)
        return [seconds for _, seconds in by_arrival[int(len(by_arrival) * WARM_UP) :]]

    def utilization(self) -> float:
        machines = self.fleet.shards * self.fleet.replicas
        return self.busy_s / (self.now_s * machines)

    def _later(self, at_s: float, happen: Callable[[], None]) -> None:
        self.events_so_far += 1  # events at the same moment happen in the order in which they were planned
        heapq.heappush(self.events, (at_s, self.events_so_far, happen))

    def _arrive(self) -> None:
        question = Question(self.now_s, self.fleet.shards)
        for shard in range(self.fleet.shards):
            self._send(Task(question, shard, self.fleet.scan))

    def _send(self, task: Task) -> None:
        replicas = self.machines[task.shard]
        machine = replicas[0] if len(replicas) == 1 else self._least_loaded(replicas)
        if not self.fleet.hedge_from_service:
            self._hedge_later(machine, task)
        self._give(machine, task)

    def _hedge_later(self, machine: Machine, task: Task) -> None:
        others = [other for other in self.machines[task.shard] if other is not machine]
        if self.fleet.hedge_after_s is not None and others and not task.hedged:
            task.hedged = True
            self._later(self.now_s + self.fleet.hedge_after_s, lambda: self._hedge(task, others))

    def _hedge(self, task: Task, others: Sequence[Machine]) -> None:
        if not task.done:
            self._give(self._least_loaded(others), task)

    def _least_loaded(self, machines: Sequence[Machine]) -> Machine:
        return min(machines, key=lambda machine: (machine.load, self.rng.random()))

    def _give(self, machine: Machine, task: Task) -> None:
        machine.waiting.append(task)
        if machine.serving is None:
            self._serve(machine)

    def _serve(self, machine: Machine) -> None:
        while machine.waiting:
            task = machine.waiting.popleft()
            if not task.done:
                machine.serving = task
                self._hedge_later(machine, task)
                seconds = task.draw(self.rng)
                self.busy_s += seconds
                self._later(self.now_s + seconds, lambda: self._served(machine))
                return

    def _served(self, machine: Machine) -> None:
        task, machine.serving = machine.serving, None
        assert task is not None
        if not task.done:
            task.done = True
            task.question.open_tasks -= 1
            if task.question.open_tasks == 0:
                self._stage_done(task.question)
        self._serve(machine)

    def _stage_done(self, question: Question) -> None:
        if question.exact_stage:
            self.taken.append((question.arrived_s, self.now_s - question.arrived_s))
        else:
            self._later(self.now_s + self.fleet.merge_s, lambda: self._merged(question))

    def _merged(self, question: Question) -> None:
        question.exact_stage, question.open_tasks = True, self.fleet.candidates
        if not self.fleet.candidates:
            self._stage_done(question)
        for _ in range(self.fleet.candidates):
            shard = int(self.rng.random() * self.fleet.shards)
            self._send(Task(question, shard, self.fleet.exact))


def percentile(seconds: Sequence[float], share: float) -> float:
    """The smallest value that at least such a share of all does not exceed."""
    ordered = sorted(seconds)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
