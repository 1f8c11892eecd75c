"""Which moments of a video damage took, told from packets, frames and the errors between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from av import Packet, VideoFrame

HEALED_S = 10.0  # so long after damage pictures are taken for whole, where there are no keyframes
MOST_THREADS = 64
# In these a packet follows the one before it, with a header of so many bytes between (Matroska may keep the
# first bytes of all packets elsewhere). Any other distance is a hole.
HEADER_BYTES = {"matroska": (-16, 512), "avi": (0, 512), "flv": (16, 64)}
# These are sent at a steady rate, so that a pause between frames is a loss.
STEADY = ("mpegts", "mpeg", "asf", "ogg", "wtv")
PAUSE_S = 0.5  # shorter ones are dropped frames
IRREGULAR = 0.05  # a video with a larger share of irregular steps may pause


class Timed(NamedTuple):
    """What a file shows from `stamp_s` on, its own timestamp in seconds."""

    stamp_s: float
    frame: VideoFrame | None  # None: damage left no picture
    readable: bool  # False: damaged, or made from pictures that are


class Losses:
    """After a decoding error or a hole: moments of packets of which no frame came, those between frames that
    are too far apart, and those of frames that may have been made from lost ones.

    Else nothing is lost: not every packet makes a frame that is shown, and a pause may be meant.
    """

    def __init__(self, fps: float) -> None:
        self._step_s = 1 / fps
        self._reached_s: float | None = None  # the last frame that was shown
        self._waiting: set[float] = set()  # stamps of packets whose frame has not come
        self._lost: set[float] = set()
        self._sent: list[float] = []  # the last ones, in decoding order
        self._corrupt: list[float] = []  # of them, those that the demuxer knows to be
        self._failed_s: float | None = None

    def read(self, packet: Packet[Any]) -> None:
        """A packet of any stream, before it is sent."""

    def sent(self, stamp_s: float, packet: Packet[Any]) -> None:
        self._waiting.add(stamp_s)
        self._sent = [*self._sent[1 - MOST_THREADS :], stamp_s]
        if packet.is_corrupt:
            self._corrupt.append(stamp_s)

    def failed(self, stamp_s: float, delay: int) -> None:
        """Decoding failed at the packet that was sent `delay` packets ago; without stamps, at `stamp_s`."""
        self._fail(self._sent[max(0, len(self._sent) - 1 - delay)] if self._sent else stamp_s)

    def until(self, stamp_s: float, frame: VideoFrame) -> Iterator[Timed]:
        """The moments lost before the next frame in display order, and the frame."""
        self._waiting.discard(stamp_s)
        passed = {sent_s for sent_s in self._waiting if sent_s < stamp_s}
        self._waiting -= passed
        reached_s = stamp_s if self._reached_s is None else self._reached_s
        self._reached_s = max(reached_s, stamp_s)
        while self._corrupt and min(self._corrupt) <= stamp_s:
            self._corrupt.remove(at_s := min(self._corrupt))
            self._fail(at_s)
        if is_hole := self._is_hole(reached_s, stamp_s):
            self._fail(reached_s)
        if self._failed_s is None:
            yield Timed(stamp_s, frame, not frame.is_corrupt)
            return
        is_whole_key = frame.key_frame and not frame.is_corrupt and stamp_s > self._failed_s
        if is_whole_key or stamp_s > self._failed_s + HEALED_S + (stamp_s - reached_s):
            self._failed_s = None
        for lost_s in sorted(self._lost_before(stamp_s, passed, reached_s, is_hole)):
            yield Timed(lost_s, None, False)
        if stamp_s not in self._lost:  # else it came too late: decoders lose the order with their frames
            yield Timed(stamp_s, frame, self._failed_s is None and not frame.is_corrupt)

    def _fail(self, at_s: float) -> None:
        self._failed_s = at_s if self._failed_s is None else max(self._failed_s, at_s)

    def _is_hole(self, reached_s: float, stamp_s: float) -> bool:
        """Whether frames are missing between one and the next, without an error."""
        return False

    def _lost_before(self, stamp_s: float, passed: set[float], reached_s: float, is_hole: bool) -> set[float]:
        self._lost.update(passed)
        return passed | {reached_s + self._step_s} if is_hole else passed


class LossesByBytes(Losses):
    """Of formats in which packets are contiguous: also gaps between frames where bytes were passed over."""

    def __init__(self, fps: float, header_bytes: tuple[int, int]) -> None:
        super().__init__(fps)
        self._header_bytes = header_bytes
        self._start = self._end = -1  # of the packet before
        self._is_cut = False  # between it and the one that is read
        self._holes: list[tuple[float, float]] = []  # stamps of the packets around them

    def read(self, packet: Packet[Any]) -> None:
        if packet.pos is None or packet.pos < 0:
            return
        if self._end >= 0 and packet.pos != self._start:  # several may share a place
            least, most = self._header_bytes
            self._is_cut |= not least <= packet.pos - self._end <= most
        self._start, self._end = packet.pos, packet.pos + packet.size

    def sent(self, stamp_s: float, packet: Packet[Any]) -> None:
        if self._is_cut and self._sent:
            self._holes.append((self._sent[-1], stamp_s))
        self._is_cut = False
        super().sent(stamp_s, packet)

    def _is_hole(self, reached_s: float, stamp_s: float) -> bool:
        self._holes = [hole for hole in self._holes if hole[1] > reached_s]
        return stamp_s - reached_s > 1.5 * self._step_s and any(a < stamp_s for a, _ in self._holes)


class LossesByRate(LossesByBytes):
    """Of AVI, whose frames do not carry their packets' stamps: after any loss, gaps between frames."""

    def _lost_before(self, stamp_s: float, passed: set[float], reached_s: float, is_hole: bool) -> set[float]:
        due_s = reached_s + self._step_s
        return {due_s} if due_s < stamp_s - 0.5 * self._step_s else set()


class LossesByPause(Losses):
    """Of formats that are sent at a steady rate: also pauses, unless the video has many."""

    def __init__(self, fps: float) -> None:
        super().__init__(fps)
        self._steps = self._irregular = 0

    def _is_hole(self, reached_s: float, stamp_s: float) -> bool:
        step_s = stamp_s - reached_s
        is_steady = self._steps > 2 and self._irregular <= IRREGULAR * self._steps
        self._steps += step_s > 0
        self._irregular += step_s > 1.5 * self._step_s
        return is_steady and step_s > max(PAUSE_S, 1.5 * self._step_s)


def losses(format_name: str, fps: float) -> Losses:
    """What tells losses in a container of libavformat's name."""
    name = format_name.split(",")[0]
    if name in HEADER_BYTES:
        kind = LossesByRate if name == "avi" else LossesByBytes
        return kind(fps, HEADER_BYTES[name])
    return LossesByPause(fps) if name in STEADY else Losses(fps)
