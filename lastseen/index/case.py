"""One question to one video of an index: a case of a search, and what others must know of it to decide."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lastseen.index.entry import IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.progress import Work
from lastseen.query import Query
from lastseen.refine.plan import expected
from lastseen.refine.step import Scale
from lastseen.rule import Rule
from lastseen.search import case as search_case
from lastseen.search.case import Draft, may_be_seen
from lastseen.sighting import Evidence


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline:
    """What is known of a case before the model runs: which video, and how it is cut into clips. Enough to
    decide what to run next, also on another machine than the one that has the features."""

    key: str  # of the video, unique in a search
    video: IndexedVideo
    end: int  # one past the last frame that is searched
    clips: Sequence[tuple[int, int, int, int]]  # start and stop; first and last frame that it predicts
    stored: bool  # whether features of all tokens are kept
    rule: Rule
    fps: float
    clip_length: int
    batch: int

    def clip_end(self, clip: int) -> float:
        """When the clip ends, in seconds since 1970."""
        return self.video.began_at + (self.video.first + self.clips[clip][3]) / self.fps

    def work(self, evidence: Evidence | None, steps: Collection[str]) -> Work:
        """What the named refinement steps are expected to take; None: before the first pass."""
        scale = Scale(self.end - self.video.first, self.clip_length, self.batch, self.stored)
        chosen = [step for step in self.rule.refinement if step.name in steps]
        return expected(chosen, evidence, self.rule.extract, scale)

    def may_be_seen(self, draft: Draft) -> bool:
        return may_be_seen(draft, self.rule)


class Case(search_case.Case):
    def __init__(
        self,
        localizer: Localizer,
        fine: FineFeatures,
        query: Query,
        encoded: list[EncodedQuery],
        end: int,
        key: str,
    ) -> None:
        super().__init__(localizer, fine, query, encoded, end)
        self.outline = Outline(
            key=key,
            video=fine.video,
            end=end,
            clips=self.clips,
            stored=fine.stored,
            rule=localizer.rule,
            fps=localizer.fps,
            clip_length=localizer.model.clip_length,
            batch=localizer.batch,
        )
