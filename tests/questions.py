"""Made-up questions for tests of how they are kept."""

from dataclasses import replace

from lastseen.index.questions import (
    THING,
    THUMBNAIL,
    Line,
    Look,
    Note,
    Question,
    Questions,
    answer_file,
    picture_file,
)

IDS = [f"{n:012x}" for n in range(1000)]


def question(id: str = IDS[0], videos=(1, 2), **more) -> Question:
    values = {
        "asked_at": 1.7e9,
        "looks": (Look(number=0, width=60, height=40, box=(1.5, 2.0, 30.0, 20.25)),),
        "before_s": None,
        "everywhere": False,
        "videos": videos,
        "incomplete": (),
        "frames": 40,
        "seconds": 8.0,
        "threshold": 0.5,
        "lines": tuple(
            Line(video=n, identity=f"sha256:{n}", found=True, words="Last seen", end_s=4.0 * n)
            for n in videos
        ),
        "notes": (Note(answer=1, video=2, text="two.mp4: damaged"),),
        "thumbnail": videos[0],
    }
    return Question(id=id, **{**values, **more})


def files_of(asked: Question, size: int = 100) -> dict[str, bytes]:
    names = [answer_file(line.video) for line in asked.lines]
    names += [picture_file(look.number) for look in asked.looks] + [THING, THUMBNAIL]
    return {name: f"{asked.id} {name} ".encode() * (size // 10) for name in names}


def keep(store: Questions, asked: Question, size: int = 100, **limits) -> Question:
    store.keep(asked, files_of(asked, size), lambda: asked.needs, **limits)
    return replace(asked, checksums=store.find(asked.id).checksums)


def sound(store: Questions) -> list[Question]:
    return store.read()[0]
