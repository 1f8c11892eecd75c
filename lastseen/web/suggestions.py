"""Routes for what is there only if a mask model is: a box suggested in a photo; and whether one is there."""

from __future__ import annotations

import logging
import threading

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel

from lastseen.box import Box
from lastseen.errors import WeightsError
from lastseen.localizer import Localizer
from lastseen.masks import MobileSam, load_mobile_sam
from lastseen.masks.stored import mobile_sam_file
from lastseen.masks.suggestion import suggested
from lastseen.web.media import Shelf
from lastseen.web.turns import Turns

log = logging.getLogger("lastseen")
NO_WEIGHTS = "there is no mask model here: see lastseen models add mobile-sam"
DAMAGED = "the mask model cannot be loaded; the server's log says why"
NOTHING = "nothing stands out in this picture"


class SettingsInfo(BaseModel):
    """`masks`: boxes of answers come from masks; `suggestions`: a box can be suggested in a photo."""

    masks: bool
    suggestions: bool


class SuggestionInfo(BaseModel):
    """`box` in pixels of the picture; `reason` says why there is none."""

    box: tuple[float, float, float, float] | None
    reason: str


class Suggester:
    """The mask model, loaded when it is first needed. Its weights are not in the package."""

    def __init__(self) -> None:
        self._model: MobileSam | None = None
        self._is_damaged = False
        self._lock = threading.Lock()

    @property
    def is_there(self) -> bool:
        return not self._is_damaged and (self._model is not None or mobile_sam_file().is_file())

    def box(self, picture: np.ndarray) -> tuple[Box | None, str]:
        """A box, or why there is none."""
        with self._lock:
            if not self.is_there:
                return None, DAMAGED if self._is_damaged else NO_WEIGHTS
            try:
                self._model = self._model or load_mobile_sam()
            except WeightsError as error:
                log.warning("no boxes are suggested: %s", error)
                self._is_damaged = True
                return None, DAMAGED
            found = suggested(self._model, picture)
        return found, "" if found else NOTHING


def suggestion_routes(shelf: Shelf, localizer: Localizer, turns: Turns) -> APIRouter:
    routes, suggester = APIRouter(prefix="/api", tags=["suggestions"]), Suggester()

    @routes.get("/settings")
    def settings() -> SettingsInfo:
        """What this server can do beside searching."""
        steps = [step.name for step in localizer.rule.refinement]
        return SettingsInfo(masks="mask" in steps, suggestions=suggester.is_there)

    @routes.post("/pictures/{id}/suggestion")
    async def suggestion(id: str) -> SuggestionInfo:
        """Suggest where the thing is in a picture."""

        def found() -> SuggestionInfo:
            box, reason = suggester.box(shelf.pictures.read(id))
            return SuggestionInfo(box=None if box is None else box.xyxy, reason=reason)

        return await turns.picture(found)

    return routes
