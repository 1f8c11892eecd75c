"""Many people at the page at once: no request fails inside, answers keep coming, memory does not grow.

    python -m benchmarks.load                                   50 clients for 10 minutes
    python -m benchmarks.load --clients 10 --minutes 1 --out load.json
    python -m benchmarks.load --from-report load.json --write-docs

Starts `lastseen serve` with the bundled video and an index of its own in a temporary folder, on a free port
of 127.0.0.1; nothing leaves the machine. Each client is a person with a page, or a program: it lists, looks
at frames, uploads a photo, asks, follows the events, fetches the answer and what is drawn of it, cancels now
and then, reads slowly, breaks off, or asks for what is not there. It waits when it is told to (429).

The report says how many requests had which status, how long questions took from asking to the answer and
other requests from sending to the last byte, and what memory the server used. Exit status 1 if a request had
a status of 500 or more, a question failed or none was answered, memory did not come back, or the server did
not end well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx

from soak.report import PAGE as DOCS
from soak.report import circumstances, put_between

ASSETS = Path(__file__).parents[1] / "lastseen" / "assets"
THING = (285.0, 120.0, 352.0, 302.0)  # in the bundled video, 32.2 s after its beginning
THING_S = 32.2
DRAWN = ("picture.jpg", "filmstrip.jpg", "report.html", "film.mp4")
PAGE = ("", "page/app.js", "page/style.css", "api/folders", "api/jobs", "openapi.json")
ENDED = ("done", "failed", "cancelled")
KEPT_MIB = 300  # more memory than after the first answer: caches, and what the allocator keeps
BEGIN, END = "<!-- load: begin -->", "<!-- load: end -->"


class Over(Exception):
    """The time is up."""


@dataclass
class Record:
    """What happened, told by all clients."""

    ends: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # requests with a status of 500 or more
    broken: Counter[str] = field(default_factory=Counter)  # connections that ended otherwise than by a client
    jobs: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)  # of questions that failed
    plain_s: list[float] = field(default_factory=list)
    question_s: list[float] = field(default_factory=list)
    waited: int = 0  # how often a client was told to come later

    def told(self, what: str, status: int) -> None:
        self.statuses[str(status)] += 1
        if status >= 500:
            self.failed[f"{what}: {status}"] += 1


class Client:
    """A person or a program, with a habit of its own."""

    def __init__(self, number: int, address: str, video: str, record: Record) -> None:
        self.luck = random.Random(number)
        self.video, self.record = video, record
        self.has_page = number % 2 == 0  # a page follows all events; a program asks again and again
        self.http = httpx.AsyncClient(base_url=address, timeout=120)

    async def run(self) -> None:
        habits: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.look_around, 4),
            (self.scrub, 5),
            (self.ask, 6),
            (self.read_slowly, 1),
            (self.break_off, 1),
            (self.ask_for_nothing, 1),
        ]
        choices, weights = zip(*habits)
        following = asyncio.create_task(self.follow_all()) if self.has_page else None
        try:
            while True:
                self.check_time()
                (habit,) = self.luck.choices(choices, weights)
                try:
                    await habit()
                except httpx.TransportError as error:
                    self.record.broken[f"{habit.__name__}: {type(error).__name__}"] += 1
                await self.sleep(self.luck.uniform(0.2, 3))
        except Over:
            pass
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await self.http.aclose()

    def check_time(self) -> None:
        if time.monotonic() >= self.record.ends:
            raise Over

    async def sleep(self, time_s: float) -> None:
        await asyncio.sleep(min(time_s, max(0.0, self.record.ends - time.monotonic())))
        self.check_time()

    async def send(self, method: str, path: str, *, timed: bool = True, **more: Any) -> httpx.Response:
        """A request; if the server says that it has too much to do, again when it says so."""
        while True:
            began = time.monotonic()
            response = await self.http.request(method, path, **more)
            self.record.told(f"{method} {re.sub('[0-9a-f]{12,16}', 'ID', path)}", response.status_code)
            if response.status_code != 429:
                if timed:
                    self.record.plain_s.append(time.monotonic() - began)
                return response
            self.record.waited += 1
            await self.sleep(float(response.headers.get("retry-after", 1)) * self.luck.uniform(1, 2))

    # --- habits ---

    async def follow_all(self) -> None:
        """As a page does: always connected, and again after a loss."""
        while True:
            try:
                async with self.http.stream("GET", "/api/events", timeout=60) as events:
                    self.record.told("GET /api/events", events.status_code)
                    async for _ in events.aiter_lines():
                        pass
            except httpx.TransportError as error:
                self.record.broken[f"events: {type(error).__name__}"] += 1
            await asyncio.sleep(1)

    async def look_around(self) -> None:
        for path in PAGE:
            await self.send("GET", f"/{path}")
        await self.send("GET", "/api/videos")

    async def scrub(self) -> None:
        for _ in range(self.luck.randint(2, 6)):
            at, width = self.luck.uniform(0, 40), self.luck.choice((160, 640, 1280))
            await self.send("GET", f"/api/videos/{self.video}/frame", params={"time": at, "width": width})
        first = self.luck.randrange(500_000)
        part = {"Range": f"bytes={first}-{first + 100_000}"}
        await self.send("GET", f"/api/videos/{self.video}/file", headers=part)

    async def ask(self) -> None:
        began = time.monotonic()
        job = (await self.send("POST", "/api/find", json={"looks": [await self.look()]})).json()["id"]
        try:
            if self.luck.random() < 0.15:
                await self.sleep(self.luck.uniform(0, 2))
                state = (await self.send("POST", f"/api/jobs/{job}/cancel")).json()
            state = await self.ended(job)
        except Over:
            # Nobody waits for it any more.
            await self.http.post(f"/api/jobs/{job}/cancel")
            self.record.jobs["not waited for"] += 1
            raise
        self.record.jobs[state["state"]] += 1
        if state["state"] == "failed":
            self.record.messages[state["message"]] += 1
        if state["state"] != "done":
            return
        answers = await self.send("GET", f"/api/jobs/{job}/answers", timed=False)
        if answers.status_code == 200:
            self.record.question_s.append(time.monotonic() - began)
            for path in ("", *(f"/{drawn}" for drawn in DRAWN if self.luck.random() < 0.2)):
                await self.send("GET", f"/api/jobs/{job}/answers/0{path}", timed=not path)

    async def look(self) -> dict[str, Any]:
        if self.luck.random() < 0.5:
            return {"video": self.video, "time": THING_S, "box": THING}
        photo = (ASSETS / "demo_query.jpg").read_bytes()
        given = (await self.send("POST", "/api/pictures?name=keys.jpg", content=photo)).json()
        await self.send("GET", f"/api/pictures/{given['id']}")
        return {"picture": given["id"]}

    async def ended(self, job: str) -> dict[str, Any]:
        if self.luck.random() < 0.5:
            async with self.http.stream("GET", f"/api/events?job={job}", timeout=60) as events:
                self.record.told("GET /api/events?job", events.status_code)
                async for _ in events.aiter_lines():
                    self.check_time()
        while True:
            state = (await self.send("GET", f"/api/jobs/{job}")).json()
            if state["state"] in ENDED:
                return state
            await self.sleep(0.5)

    async def read_slowly(self) -> None:
        async with self.http.stream("GET", f"/api/videos/{self.video}/file") as response:
            self.record.told("GET slowly", response.status_code)
            async for _ in response.aiter_bytes(16384):
                await self.sleep(0.2)

    async def break_off(self) -> None:
        async def half() -> Any:
            yield bytes(50_000)
            raise BrokenOff

        try:
            await self.http.post("/api/uploads?name=half.mp4", content=half())
        except BrokenOff:
            self.record.statuses["broken off by a client"] += 1

    async def ask_for_nothing(self) -> None:
        await self.send("GET", "/api/jobs/nothing/answers")
        await self.send("GET", f"/api/videos/{self.video}/frame?time=5000")
        await self.send("POST", "/api/pictures?name=no.jpg", content=b"no picture")
        await self.send("POST", "/api/find", json={"looks": [{"picture": "nothing"}]})


class BrokenOff(Exception):
    pass


class Memory:
    """What the server's process uses, looked at every half second."""

    def __init__(self, process: int) -> None:
        self.process, self.peak = process, 0.0

    def now(self) -> float:
        """MiB."""
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process)], capture_output=True, text=True, check=True
        )
        used = int(said.stdout) / 1024
        self.peak = max(self.peak, used)
        return used

    async def watch(self) -> None:
        while True:
            await asyncio.to_thread(self.now)
            await asyncio.sleep(0.5)


async def measured(
    address: str, memory: Memory, clients: int, minutes: float, idle_s: float
) -> dict[str, Any]:
    record = Record(ends=time.monotonic() + 3600)
    async with httpx.AsyncClient(base_url=address, timeout=120) as http:
        say("reading the video")
        (job,) = (await http.get("/api/jobs")).json()
        while (await http.get(f"/api/jobs/{job['id']}")).json()["state"] not in ENDED:
            await asyncio.sleep(0.5)
        (video,) = (await http.get("/api/videos")).json()["videos"]
    say("the first question, alone")
    first = Client(-1, address, video["id"], record)
    first.luck.random = lambda: 0.4  # type: ignore[method-assign]  # a moment of the video, not cancelled
    await first.ask()
    await first.http.aclose()
    alone_s, before = record.question_s, memory.now()
    record = Record(ends=time.monotonic() + 60 * minutes)
    memory.peak = before
    say(f"{clients} clients for {minutes:g} minutes")
    watching = asyncio.create_task(memory.watch())
    await asyncio.gather(*(Client(n, address, video["id"], record).run() for n in range(clients)))
    say(f"nobody for {idle_s:.0f} s")
    await asyncio.sleep(idle_s)
    watching.cancel()
    return {
        "clients": clients,
        "minutes": minutes,
        "idle_s": idle_s,
        "statuses": dict(sorted(record.statuses.items())),
        "failed": dict(record.failed),
        "broken": dict(record.broken),
        "told_to_come_later": record.waited,
        "questions": dict(record.jobs),
        "messages": dict(record.messages),
        "question_alone_s": [round(taken, 3) for taken in alone_s],
        "question_s": percentiles(record.question_s),
        "plain_request_s": percentiles(record.plain_s),
        "memory_mib": {"before": round(before), "peak": round(memory.peak), "after": round(memory.now())},
    }


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def percentiles(times_s: list[float]) -> dict[str, float]:
    ordered = sorted(times_s)
    if not ordered:
        return {"count": 0}
    at = {f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 3) for p in (50, 95, 99)}
    return {"count": len(ordered), **at, "most": round(ordered[-1], 3)}


def problems(report: dict[str, Any]) -> list[str]:
    found = [f"{count} x {what}" for what, count in report["failed"].items()]
    found += [f"{count} x question failed: {says}" for says, count in report["messages"].items()]
    if not report["question_s"]["count"]:
        found.append("no question was answered")
    if report["memory_mib"]["after"] > report["memory_mib"]["before"] + KEPT_MIB:
        found.append(f"more than {KEPT_MIB} MiB of memory did not come back")
    if report["exit_status"] != 0:
        found.append(f"the server ended with {report['exit_status']}")
    if "Traceback" in report["server_said"]:
        found.append("the server printed a traceback")
    return found


def text_of(report: dict[str, Any]) -> str:
    memory, lines = report["memory_mib"], []
    lines.append(f"{report['clients']} clients, {report['minutes']:g} minutes")
    lines.append("requests by status: " + ", ".join(f"{k}: {v}" for k, v in report["statuses"].items()))
    lines.append(f"status 500 or more: {sum(report['failed'].values())}")
    lines.append("questions: " + ", ".join(f"{k}: {v}" for k, v in report["questions"].items()))
    lines.append(f"a question alone: {report['question_alone_s'][0]:.2f} s")
    for name, key in (("from asking to the answer", "question_s"), ("other requests", "plain_request_s")):
        lines.append(f"{name}: " + ", ".join(f"{k} {v}" for k, v in report[key].items()) + " (seconds)")
    lines.append(f"told to come later: {report['told_to_come_later']}; broken: {report['broken'] or 'none'}")
    lines.append(
        f"memory: {memory['before']} MiB after the first answer, {memory['peak']} at most, "
        f"{memory['after']} {report['idle_s']:.0f} s after the last"
    )
    return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in problems(report))])


def write_docs(report: dict[str, Any], page: Path = DOCS) -> None:
    made = "lastseen {lastseen}, {date}, {system}:".format(**report)
    put_between(BEGIN, END, f"{made}\n\n```\n{text_of(report)}\n```", page)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--idle", type=float, default=30, help="seconds before memory is looked at again")
    parser.add_argument("--weights", help="of the server; default: the bundled model")
    parser.add_argument("--out", type=Path, help="where the report goes as JSON; it is printed in any case")
    parser.add_argument("--write-docs", action="store_true", help="put the report into docs/reliability.md")
    parser.add_argument("--from-report", type=Path, metavar="FILE.json", help="run nothing, take this report")
    given = parser.parse_args()
    report = json.loads(given.from_report.read_text()) if given.from_report else run(given)
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    if given.write_docs:
        write_docs(report)
    print(text_of(report))
    if report["server_said"]:
        print(f"the server said:\n{report['server_said']}")
    sys.exit(1 if problems(report) else 0)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "said").open("w+") as said:
        command = [sys.executable, "-m", "lastseen", "serve", str(ASSETS / "demo.mp4"), "--port", "0", "-q"]
        command += ["--index", str(Path(folder) / "index")]
        command += ["--weights", arguments.weights] if arguments.weights else []
        environment = {k: v for k, v in os.environ.items() if k not in ("LASTSEEN_INDEX", "LASTSEEN_TOKEN")}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
        try:
            assert server.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
            assert address is not None, "the server did not start"
            load = (arguments.clients, arguments.minutes, arguments.idle)
            report = asyncio.run(measured(address[0], Memory(server.pid), *load))
            server.send_signal(signal.SIGINT)
            report["exit_status"] = server.wait(30)
        finally:
            server.kill()
            server.wait()
        said.seek(0)
        report["server_said"] = said.read()[-4000:]
    return {**circumstances(), **report}


if __name__ == "__main__":
    main()
