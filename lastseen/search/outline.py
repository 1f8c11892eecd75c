"""What is known of a search before the model runs: enough to decide what to run next, also on another machine
than the one that has the features."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lastseen.answer import Answer
from lastseen.progress import Work
from lastseen.refine import Extend, Mask, Zoom
from lastseen.refine.plan import expected
from lastseen.refine.step import Scale
from lastseen.rule import Rule
from lastseen.search.source import Source
from lastseen.sighting import Evidence

# Run on the final answer only: they change the extent or the boxes of sightings, not whether there are any.
LAST_STEPS = frozenset({Extend.name, Mask.name})
MIN_THRESHOLD_RATIO = 0.4  # best guesses above this share of the threshold are refined: they may pass then


@dataclass(frozen=True, eq=False)
class Draft:
    """The provisional answer for one video."""

    answer: Answer
    evidence: Evidence
    began_at: float  # of the video, in seconds since 1970 if that is known

    @property
    def zoomed(self) -> bool:
        return Zoom.name in self.answer.steps

    @property
    def seen_at(self) -> float:
        """When the thing was last seen, or guessed to be."""
        return self.began_at + (self.answer.shown[-1].end if self.answer.shown else 0.0)


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """A Source without its features."""

    key: str
    place: str
    began_at: float
    ended_at: float
    first: int
    end: int
    stored: bool
    scoring_work: Work

    @classmethod
    def of(cls, source: Source) -> SourceFacts:
        return cls(
            key=source.key,
            place=source.place,
            began_at=source.began_at,
            ended_at=source.began_at + source.video.duration_s,
            first=source.first,
            end=source.end,
            stored=source.stored,
            scoring_work=source.scoring_work,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline:
    """A case, which is one question to one source: how the source is cut into clips for it."""

    source: SourceFacts
    end: int  # one past the last frame that is searched
    clips: Sequence[tuple[int, int, int, int]]  # start and stop; first and last frame that it predicts
    rule: Rule
    fps: float
    clip_length: int
    batch: int

    @property
    def key(self) -> str:
        return self.source.key

    @property
    def frames(self) -> int:
        return self.end - self.source.first

    def clip_end(self, clip: int) -> float:
        """When the clip ends, in seconds since 1970."""
        return self.source.began_at + (self.source.first + self.clips[clip][3]) / self.fps

    def work(self, evidence: Evidence | None, steps: Collection[str]) -> Work:
        """What the named refinement steps are expected to take; None: before the first pass."""
        scale = Scale(self.frames, self.clip_length, self.batch, self.source.stored)
        chosen = [step for step in self.rule.refinement if step.name in steps]
        return expected(chosen, evidence, self.rule.extract, scale)

    def may_be_seen(self, draft: Draft) -> bool:
        guess = draft.answer.best_guess
        least = MIN_THRESHOLD_RATIO * self.rule.confidence.threshold
        return draft.answer.found or (guess is not None and guess.score >= least)
