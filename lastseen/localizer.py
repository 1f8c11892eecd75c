"""Localizer: a video and a query in, the moment the thing was last seen out."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from lastseen.access import VideoAccess, VideoFeatures
from lastseen.answer import Answer, VideoInfo
from lastseen.baselines.stored import RIVAL_ENGINES, load_rival, procedure_of, rival_engine, rival_folder
from lastseen.engine import default_engine
from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import LastSeenError, QueryError
from lastseen.files import StrPath
from lastseen.model import EncodedQuery, TrainedModel, TrainingFreeModel
from lastseen.procedure import Published, Standard
from lastseen.progress import ENCODED, LOCALIZED, SEARCHING, Tell, Tracker
from lastseen.query import Footage, Query, as_query, as_video
from lastseen.refine import Mask
from lastseen.refine.plan import RefinementPlan, phases
from lastseen.refine.step import Scale
from lastseen.rule import Rule
from lastseen.runner import ModelRunner, SoFar
from lastseen.search.part import SourcePart
from lastseen.search.run import search_parts
from lastseen.search.source import EndsEarly, FileSource
from lastseen.seen_so_far import SeenSoFar
from lastseen.sighting import Confidence, Evidence
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.video import Video
from lastseen.video.unreadable import Unreadable
from lastseen.weights import bundled_model, load_model, load_rule, load_token_basis, load_training_free

TRAINING_FREE = "training-free"  # in place of a folder: patch matching without trained heads
# Fitted on the development set of real video: docs/results.md.
TRAINING_FREE_RULE = Rule(confidence=Confidence(slope=2.1, offset=-1.8))

# Coarse to fine: of so many frames one is looked at first. The model runs on this share of the clips, at
# least on so many; where that would be most of the clips, it runs on all.
COARSE_STEP = 3
CANDIDATE_SHARE, LEAST_CANDIDATES = 0.15, 12
LEAST_CLIPS_RATIO = 2  # clips of a video / candidates

FRAMES_HELD = 64  # cache of frames that refinement encodes again: 50 MB


class Localizer(ModelRunner):
    """Finds things in videos with one model and one procedure (`lastseen.procedure`)."""

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        paper: bool = False,
        device: str | torch.device | None = None,
        threshold: float | None = None,
        skip: Collection[str] = (),
        engine: str | None = None,
        masks: bool = False,
        tracker: str | None = None,
        tracker_weights: str | os.PathLike[str] | None = None,
    ) -> Localizer:
        """The bundled model, one from a folder that `lastseen train` or `lastseen convert` wrote, or
        "training-free": plain matching on the bundled backbone. The paper's rivals go by name, too, where
        their weights are ("siamrcnn", docs/rivals.md); `tracker` is what follows a rival's peak.

        `paper` follows the paper's procedure. `threshold` is the least confidence that counts as seen,
        `skip` names refinement steps to leave out; both default to the model's rule.
        `engine` is one of `lastseen.engine.ENGINES`; by default the fastest here (`default_engine`).
        `masks` takes the boxes of an answer from masks; `lastseen models add mobile-sam` gets what it needs.
        """
        if masks and paper:
            raise LastSeenError("masks refine boxes, and the paper's procedure refines nothing: choose one")
        where = best_device() if device is None else checked_device(device)
        batch = 64 if where.type == "cuda" else 4
        rival = None if path is None else rival_folder(path)
        if rival is not None:
            if masks or skip or threshold is not None:
                raise LastSeenError(
                    f"{path} is a rival of the paper: it has no mask, step or threshold to set"
                )
            chosen = engine or rival_engine(where)
            return cls._of_rival(rival, paper, where, batch, chosen, tracker, tracker_weights)
        if tracker is not None or tracker_weights is not None:
            raise LastSeenError(
                "a tracker follows the peak of a rival (--weights siamrcnn ..), of no other model"
            )
        model: TrainedModel | TrainingFreeModel
        basis = None
        if path is not None and os.fspath(path) == TRAINING_FREE:
            model, rule = load_training_free(), TRAINING_FREE_RULE
        else:
            folder = bundled_model() if path is None else path
            model, rule, basis = load_model(folder), load_rule(folder), load_token_basis(folder)
        if threshold is not None:
            rule = replace(rule, confidence=replace(rule.confidence, threshold=threshold))
        if masks:
            rule = rule.with_mask()
        rule = rule.without(skip)
        procedure = Published() if paper else Standard(rule)
        engine = engine or default_engine(where, paper, model)
        made = cls(
            model.to(where),
            procedure=procedure,
            device=where,
            batch=batch,
            engine=engine,
            token_basis=basis,
        )
        if any(step.name == Mask.name for step in made.rule.refinement):
            made.load_segmenter()  # at once: missing weights must not show after a long search
        return made

    @classmethod
    def _of_rival(
        cls,
        folder: Path,
        paper: bool,
        device: torch.device,
        batch: int,
        engine: str,
        tracker: str | None,
        tracker_weights: str | os.PathLike[str] | None,
    ) -> Localizer:
        if engine not in RIVAL_ENGINES:
            raise LastSeenError(
                f"engine {engine} is not for rivals; choose one of {', '.join(RIVAL_ENGINES)}"
            )
        model, after = load_rival(folder)
        model = model.to(device)
        procedure = procedure_of(
            model, after, constant_score=paper, tracker=tracker, tracker_weights=tracker_weights
        )
        return cls(model, procedure=procedure, device=device, batch=batch, engine=engine)

    def locate(
        self, video: Video | StrPath, query: Query | StrPath, progress: Tell | None = None
    ) -> ResponseTrack | None:
        """When and where the thing was last seen before `query.asked_at`; None if it was not seen."""
        return self.ask(video, query, progress).last

    def locate_all(
        self, video: Video | StrPath, query: Query | StrPath, progress: Tell | None = None
    ) -> list[ResponseTrack]:
        """All sightings before `query.asked_at`, in time order; the model runs on every frame."""
        return list(self.ask(video, query, progress, exhaustive=True).sightings)

    def ask(
        self,
        video: Video | StrPath,
        query: Query | StrPath,
        progress: Tell | None = None,
        preliminary: Callable[[Answer], None] | None = None,
        *,
        exhaustive: bool = False,
        candidates: int | None = None,
    ) -> Answer:
        """The full answer: the sightings, or else the best guess, and the score curve. Names of files do.

        A long video is searched coarse to fine for the last sighting: the model runs on the `candidates`
        most promising clips first, and the curve says on which frames it ran; earlier sightings may be
        missing. `exhaustive` runs it on every frame, as is done with short videos (`lastseen.search`).

        `progress` is called with a Progress again and again. `preliminary` is called when the first pass over
        the video is done, with what it says, and in a long one also with what was seen so far; refinement may
        still change that.
        """
        return self.ask_many(
            video, [query], progress, preliminary, exhaustive=exhaustive, candidates=candidates
        )[0]

    def ask_many(
        self,
        video: Video | StrPath,
        queries: Sequence[Query | StrPath],
        progress: Tell | None = None,
        preliminary: Callable[[Answer], None] | None = None,
        *,
        exhaustive: bool = False,
        candidates: int | None = None,
    ) -> list[Answer]:
        """As `ask`, for several queries; the video is decoded and encoded once. `preliminary` is called for
        each: `Answer.query` says for which."""
        video, asked = as_video(video), [as_query(query) for query in queries]
        ends = [self.frames_searched(video, query) for query in asked]
        clips = -(-max(ends) // self.clip_step)
        count = candidates or max(LEAST_CANDIDATES, round(CANDIDATE_SHARE * clips))
        # On a GPU nearly all of the time goes into decoding, and coarse to fine decodes some frames twice.
        every_frame = exhaustive or self.procedure.reads_every_frame or self.device.type != "cpu"
        if not every_frame and count * LEAST_CLIPS_RATIO <= clips:
            # A file that ends before it should is searched to where it ends.
            with suppress(EndsEarly):
                return self._coarse_to_fine(video, asked, max(ends), count, progress, preliminary)
        return self._exhaustive(video, asked, ends, progress, preliminary)

    def _coarse_to_fine(
        self,
        video: Video,
        asked: Sequence[Query],
        end: int,
        count: int,
        progress: Tell | None,
        preliminary: Callable[[Answer], None] | None,
    ) -> list[Answer]:
        tracker = Tracker(progress, self.speeds)
        here, queries = self.tracked_by(tracker), {str(n): query for n, query in enumerate(asked)}
        so_far = None if preliminary is None else SeenSoFar(self.first_answer, video, asked, preliminary)

        def tell(_: str, answers: Sequence[Answer]) -> None:
            if preliminary is not None:
                for answer in answers:
                    preliminary(answer)

        def predictions() -> list[FramePredictions]:
            return [case.predictions() for of_name in part.cases.values() for case in of_name.values()]

        part = SourcePart(
            here,
            queries,
            {name: here.encode_query(query) for name, query in queries.items()},
            [FileSource(here, video, end, COARSE_STEP)],
            lambda _, query: self.frames_searched(video, query),
            tracker,
            after_clip=None if so_far is None else lambda: so_far(predictions),
        )
        found = search_parts(
            [part],
            self.procedure,
            list(queries),
            every=False,
            exhaustive=False,
            candidates=count,
            tracker=tracker,
            preliminary=tell,
        )
        return [found[name][0] for name in queries]

    def _exhaustive(
        self,
        video: Video,
        asked: Sequence[Query],
        ends: Sequence[int],
        progress: Tell | None,
        preliminary: Callable[[Answer], None] | None,
    ) -> list[Answer]:
        tracker = Tracker(progress, self.speeds)
        here, plans = self.tracked_by(tracker), self._plans(tracker, ends)
        encoded = [here.encode_query(query) for query in asked]
        unreadable = Unreadable(video, max(ends))
        so_far = None if preliminary is None else SeenSoFar(self.first_answer, video, asked, preliminary)
        predictions = here._first_pass(video, encoded, ends, tracker, unreadable, so_far)
        missing_s = (unreadable.count + max(ends) - max(map(len, predictions))) / self.fps
        for plan, of_query in zip(plans, predictions):
            plan.expect(Evidence.of(of_query))
        if preliminary is not None:
            tracker.tell()
            for query, of_query in zip(asked, predictions):
                preliminary(self.first_answer(video, query, of_query, missing_s))
        refined = here._refine(video, encoded, predictions, plans)
        said = zip(asked, predictions, refined)
        return [self.answer(video, *of_query, unreadable_s=missing_s) for of_query in said]

    def refine(
        self, video: Video, queries: Sequence[Query], predictions: Sequence[FramePredictions]
    ) -> list[Evidence]:
        """Refine the output of `predict`; a few frames are decoded and encoded again."""
        plans = self._plans(Tracker(), [len(of_query) for of_query in predictions])
        return self._refine(video, [self.encode_query(query) for query in queries], predictions, plans)

    def _refine(
        self,
        video: Video,
        queries: Sequence[list[EncodedQuery]],
        predictions: Sequence[FramePredictions],
        plans: Sequence[RefinementPlan],
    ) -> list[Evidence]:
        """Phase by phase: no box is measured before the last query was looked at closer."""
        features = VideoFeatures(self, lambda: video, max(map(len, predictions)), FRAMES_HELD)
        accesses = [VideoAccess(self, video, query, features.read, lambda: video) for query in queries]
        refined = [Evidence.of(of_query) for of_query in predictions]
        names = {step.name for step in self.rule.refinement}
        for phase, steps in phases(self.rule.refinement).items():
            others = names - {step.name for step in steps}
            for number, (plan, access) in enumerate(zip(plans, accesses)):
                refined[number] = self.procedure.refine(refined[number], access, others, plan.begin)
                plan.end(phase)
        return refined

    def _plans(self, tracker: Tracker, ends: Sequence[int]) -> list[RefinementPlan]:
        clip, batch = self.model.clip_length, self.batch
        return [
            RefinementPlan(tracker, self.rule, Scale(end, clip, batch), str(number))
            for number, end in enumerate(ends)
        ]

    def first_answer(
        self, video: VideoInfo, query: Query, predictions: FramePredictions, unreadable_s: float = 0.0
    ) -> Answer:
        """What the first pass says, before any refinement."""
        skipped = {step.name for step in self.rule.refinement}
        evidence = Evidence.of(predictions)
        answer = self.answer(video, query, predictions, evidence, skipped=skipped, unreadable_s=unreadable_s)
        return replace(answer, preliminary=True)

    def predict(
        self, video: Video, queries: Sequence[Query], progress: Tell | None = None
    ) -> list[FramePredictions]:
        """The model's output before refinement: a box and a logit for every frame, for each query."""
        ends = [self.frames_searched(video, query) for query in queries]
        encoded = [self.encode_query(query) for query in queries]
        tracker = Tracker(progress, self.speeds)
        here = self.tracked_by(tracker)
        return here._first_pass(video, encoded, ends, tracker, Unreadable(video, max(ends)))

    def _first_pass(
        self,
        video: Video,
        queries: Sequence[list[EncodedQuery]],
        ends: Sequence[int],
        tracker: Tracker,
        unreadable: Unreadable,
        so_far: SoFar | None = None,
    ) -> list[FramePredictions]:
        tracker.plan(SEARCHING, "video", {ENCODED: max(ends), LOCALIZED: sum(ends)})
        tracker.begin(SEARCHING, "video", ENCODED)
        pieces = self.encoded(video, 0, max(ends), unreadable)
        predictions = self.predict_encoded(video, pieces, queries, ends, so_far)
        tracker.finish(SEARCHING, "video")
        return predictions

    def frames_searched(self, footage: Footage, query: Query) -> int:
        """Number of frames before `query.asked_at`."""
        total = footage.frame_count(self.fps)
        if query.asked_at is None:
            return total
        if not query.asked_at > 0:
            raise QueryError(f"asked at {query.asked_at:g} s: the video starts at 0 s, ask after that")
        if query.asked_at > footage.duration_s + 1 / self.fps:
            raise QueryError(
                f"asked at {query.asked_at:g} s, past the end of {footage.path} "
                f"({footage.duration_s:.2f} s); leave the time out to search all of it"
            )
        return min(total, math.ceil(query.asked_at * self.fps - 1e-6))
