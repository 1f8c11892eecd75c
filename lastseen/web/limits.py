"""How much of the server one can take up: connections, streams, waiting jobs, pictures, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The defaults are far above what a household needs and far below what brings a small machine down."""

    # Browsers keep up to six connections open; a process may have 256 to 1024 files open in all.
    connections: int = 200
    streams: int = 100  # of events; each takes a connection for as long as its page is open
    requests: int = 1000  # under way, also of clients that have left
    head_s: float = 20.0  # until the head of the next request is there; ends idle connections, too
    body_window_s: float = 20.0  # a body must bring `body_bytes_s` a second in each such time
    body_bytes_s: int = 1024
    reader_s: float = 120.0  # a client that takes nothing for so long; players of paused videos ask again
    json_bytes: int = MIB  # the largest body that is not a file; eight views and a thousand videos fit

    # Questions take seconds each, so whoever is behind so many has waited for minutes.
    questions: int = 128
    questions_of_one: int = 64  # from one address, so that one cannot take all
    readings: int = 1000  # videos waiting to be indexed; a waiting one costs a kilobyte
    results_bytes: int = 256 * MIB  # of kept answers in memory; the oldest go first

    # Questions with their answers, kept with the index; the oldest go first.
    questions_kept: int = 500
    questions_kept_bytes: int = 256 * MIB

    pictures: int = 256
    pictures_bytes: int = 256 * MIB  # of uploaded pictures on disk; the least recently used go first
    picture_age_s: float = 3600.0  # since it was last used
    in_line: int = 200  # for each of the following; more than connections are of clients that have left
    drawn_at_once: int = 1  # films and reports
    uploads_at_once: int = 2  # videos that are checked
    frames_at_once: int = 2
    pictures_at_once: int = 1  # a picture of 100 megapixels takes a gigabyte to decode
