"""Spread videos over workers, each with a shard of its own.

A video is handed to one worker at a time and is done when that worker's shard has committed it. If the worker
dies, another one goes on, in the shard where the video was begun if nobody else writes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from lastseen.cluster.machines import WAIT_S, Machines, WorkerDied
from lastseen.cluster.overall import Overall
from lastseen.cluster.shards import Shards, check_place
from lastseen.cluster.storage import Source
from lastseen.cluster.worker import (
    BUSY,
    ELSEWHERE,
    FAILED,
    Begun,
    Board,
    IndexWorker,
    ModelChoice,
    Outcome,
    known,
)
from lastseen.errors import LastSeenError
from lastseen.progress import Tell

MOST_DEATHS = 3  # of workers by one video, and of workers in a row that never began
BUSY_S, BUSY_TRIES = 1.0, 10  # a video that another process has is tried again: its lock may be a dead one's
POLL_S = 0.3
Report = Callable[[Outcome], None]


@dataclass
class Job:
    source: Source
    name: str
    shard: str | None = None  # where it was begun
    deaths: int = 0
    busy: int = 0
    not_before: float = 0.0


@dataclass
class Member:
    """A worker and what it is at; `shard` is None until it has begun."""

    number: int
    actor: Any
    call: Any
    shard: str | None = None
    job: Job | None = None


@dataclass
class Plan:
    """What is asked for."""

    folder: str
    choice: ModelChoice
    keep: str | None
    allow_truncated: bool = False
    workers: int | None = None


def index_sources(
    connect: Callable[[], AbstractContextManager[Machines]],
    plan: Plan,
    sources: Sequence[Source],
    report: Report,
    progress: Tell | None = None,
) -> None:
    """Index what no shard has yet; `report` is called with the outcome of each source, in any order."""
    check_place(plan.folder)
    with Shards(plan.folder) as shards:
        there, engine = shards.known(sources), shards.engine
        taken = {video.name for video in shards.videos()}
    plan = replace(plan, choice=replace(plan.choice, engine=plan.choice.engine or engine))
    jobs = []
    for source in sources:
        held = there.get(source.place)
        if held and held.video.complete:
            report(known(source, held))
            continue
        name = held.video.name if held else _free(source.name, taken)
        taken.add(name)
        jobs.append(Job(source, name, held.shard if held else None))
    if jobs:
        with connect() as machines:
            _Crew(machines, plan, jobs, report, progress).run()


def _free(name: str, taken: set[str]) -> str:
    """As the catalogue of one index names videos of the same name."""
    names = (name if n == 1 else f"{name} ({n})" for n in range(1, len(taken) + 2))
    return next(one for one in names if one not in taken)


@dataclass
class _Crew:
    machines: Machines
    plan: Plan
    jobs: list[Job]
    report: Report
    progress: Tell | None
    members: list[Member] = field(default_factory=list)
    started: int = 0
    failed_starts: int = 0
    fingerprint: str | None = None

    def run(self) -> None:
        # The longest first, so that in the end no worker waits long for another one.
        self.jobs.sort(key=lambda job: (job.shard is None, -job.source.size))
        room = self.machines.room(self.plan.workers, self.plan.choice.device)
        self._room, count = room, min(room.workers, len(self.jobs))
        self._choice = replace(self.plan.choice, threads=room.threads)
        self._overall = Overall(self.progress, [job.source for job in self.jobs])
        self._board = self.machines.actor(Board, restarts=-1)
        self._since = time.monotonic()
        try:
            # The first one makes the first shard, and says which engine all have.
            self._start()
            while self.jobs or any(member.job for member in self.members):
                if self.fingerprint is not None:
                    while len(self.members) < min(count, self._open()):
                        self._start()
                self._hand_out()
                self._wait()
                self._tell()
            self._close()
        finally:
            for member in self.members:
                self.machines.stop(member.actor)
            self.machines.stop(self._board)

    def _open(self) -> int:
        """Videos that are left."""
        return len(self.jobs) + sum(member.job is not None for member in self.members)

    def _start(self) -> None:
        number, self.started = self.started, self.started + 1
        arguments = (self.plan.folder, self._choice, self._board, number)
        actor = self.machines.actor(IndexWorker, *arguments, room=self._room)
        self.members.append(Member(number, actor, actor.begin.remote()))
        self._since = time.monotonic()

    def _hand_out(self) -> None:
        for member in self.members:
            if member.call is None and (job := self._next(member)) is not None:
                self.jobs.remove(job)
                member.job = job
                member.call = member.actor.record.remote(
                    job.source, job.name, self.plan.keep, self.plan.allow_truncated
                )

    def _next(self, member: Member) -> Job | None:
        """The first job that is due and was not begun in the shard of another worker that lives."""
        others = {other.shard for other in self.members} - {member.shard}
        due = [job for job in self.jobs if job.not_before <= time.monotonic() and job.shard not in others]
        mine = [job for job in due if job.shard == member.shard]
        return next(iter([*mine, *due]), None)

    def _wait(self) -> None:
        calls = {member.call: member for member in self.members if member.call is not None}
        if not calls:
            time.sleep(POLL_S)
            return
        for call in self.machines.finished(list(calls), POLL_S):
            member = calls[call]
            try:
                said = self.machines.get(call)
            except WorkerDied as error:
                self._lost(member, str(error))
                continue
            member.call = None
            if member.job is None:
                self._began(member, said)
            else:
                self._done(member, said)
        # A replacement may wait for a machine that is gone for good; others go on without it.
        beginning = all(member.shard is None for member in self.members)
        if beginning and time.monotonic() - self._since > WAIT_S:
            there = self.machines.ray.available_resources()
            free = ", ".join(f"{there.get(name, 0):g} {name}" for name in ("CPU", "GPU"))
            raise LastSeenError(f"--ray: no worker began within {WAIT_S:g} s; Ray has {free} free")

    def _began(self, member: Member, said: Begun | str) -> None:
        if isinstance(said, str):
            raise LastSeenError(said)
        if self.fingerprint is None:
            self.fingerprint = said.fingerprint
            self._choice = replace(self._choice, engine=said.engine)
        if said.fingerprint != self.fingerprint:
            raise LastSeenError(
                f"--ray: {said.host} would make other features than the first worker; give --engine or "
                "--device, and the same --weights on each machine"
            )
        member.shard, self.failed_starts = said.shard, 0

    def _done(self, member: Member, said: Outcome) -> None:
        job, member.job = member.job, None
        assert job is not None
        if said.outcome == ELSEWHERE and job.busy < BUSY_TRIES:
            self._again(job, said.shard)
        elif said.outcome == BUSY and job.busy < BUSY_TRIES:
            self._again(job, job.shard)
        else:
            said = replace(said, outcome=BUSY) if said.outcome == ELSEWHERE else said
            self._overall.done(job.source, said.frames)
            self.report(said)

    def _again(self, job: Job, shard: str | None) -> None:
        mine = shard in {member.shard for member in self.members}
        job.busy += not mine
        job.shard, job.not_before = shard, 0.0 if mine else time.monotonic() + BUSY_S
        self.jobs.append(job)

    def _lost(self, member: Member, why: str) -> None:
        """A worker died: its video goes to another one, unless it killed too many."""
        self.members.remove(member)
        self._overall.stopped(member.number)
        with suppress(Exception):  # its process may live on without us
            self.machines.stop(member.actor)
        job = member.job
        if job is None:
            self.failed_starts += 1
            if self.failed_starts >= MOST_DEATHS:
                raise LastSeenError(f"--ray: {MOST_DEATHS} workers in a row died before they began: {why}")
        else:
            job.deaths, job.shard = job.deaths + 1, member.shard
            if job.deaths < MOST_DEATHS:
                self.jobs.insert(0, job)
            else:
                error = (
                    f"{job.source.place}: {job.deaths} workers died while they indexed it, so it is left out "
                    f"({why}); index it alone to see why"
                )
                self._overall.done(job.source, 0)
                self.report(Outcome(source=job.source, outcome=FAILED, name=job.name, error=error))
        if self.fingerprint is None:
            self._start()

    def _tell(self) -> None:
        if self.progress is None:
            return
        with suppress(WorkerDied, TimeoutError):
            told = self.machines.get(self._board.told.remote(), timeout_s=POLL_S)
            working = {member.number: member.job.source for member in self.members if member.job}
            self._overall.update(working, told)

    def _close(self) -> None:
        """Shards that got nothing are removed."""
        for member in self.members:
            if member.shard is not None:
                with suppress(WorkerDied, TimeoutError):
                    self.machines.get(member.actor.close.remote(), timeout_s=WAIT_S)
