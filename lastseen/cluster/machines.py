"""The machines: a running Ray cluster, or one on this machine for the length of a command.

A cluster that is started here listens on the loopback interface only, asks for a token, has no dashboard and
sends no usage statistics.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from lastseen.errors import LastSeenError

AUTO = "auto"
MEMORY_A_WORKER = 2 * 2**30  # bytes, on the CPU: the model, frames and features of one video
STORE_BYTES = 512 * 2**20  # for what goes to and from workers, on this machine
ANSWER_S = 10.0
WAIT_S = 120.0  # for a worker to begin
LOCAL = {  # read when Ray is imported
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's way to say: the loopback interface
}


@dataclass(frozen=True)
class Room:
    """How many workers there is room for, and what each gets."""

    workers: int
    cpus: float
    gpus: float

    @property
    def threads(self) -> int | None:
        return None if self.gpus else max(1, int(self.cpus))


class Machines:
    """Starts actors on a cluster and waits for what they return."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def room(self, wanted: int | None, device: str | None = None) -> Room:
        """By default a worker for each GPU, or, without one, for each core that has memory enough."""
        there = self.ray.cluster_resources()
        gpus, cpus = int(there.get("GPU", 0)), max(1.0, there.get("CPU", 1.0))
        if gpus and not (device or "").startswith("cpu"):
            if wanted is not None and wanted > gpus:
                raise LastSeenError(
                    f"--workers {wanted}: the cluster has {gpus} GPUs; give that, or --device cpu"
                )
            return Room(wanted or gpus, 1 if cpus >= gpus else 0, 1)
        fitting = max(1, int(there.get("memory", 0) // MEMORY_A_WORKER))
        workers = wanted or min(int(cpus), fitting)
        if workers > cpus:
            return Room(workers, math.floor(1e4 * cpus / workers) / 1e4, 0)  # Ray counts in such parts
        of_nodes = [node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]]
        each = int(cpus // workers)
        while each > 1 and sum(here // each for here in of_nodes) < workers:
            each -= 1  # a worker has the cores of one machine
        return Room(workers, each, 0)

    def actor(self, made_of: type, *arguments: Any, room: Room | None = None, restarts: int = 0) -> Any:
        """An actor; it takes what `room` says, or nothing."""
        cpus, gpus = (room.cpus, room.gpus) if room else (0, 0)
        remote = self.ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=restarts)(made_of)
        return remote.remote(*arguments)

    def put(self, value: Any) -> Any:
        return self.ray.put(value)

    def get(self, call: Any, timeout_s: float | None = None) -> Any:
        """What a call returned; WorkerDied if its worker did not live to."""
        try:
            return self.ray.get(call, timeout=timeout_s)
        except self.ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, LastSeenError) else error) from None
        except self.ray.exceptions.GetTimeoutError:
            raise TimeoutError from None
        except self.ray.exceptions.RayError as error:
            raise WorkerDied(" ".join(str(error).split())[:200]) from None

    def finished(self, calls: list[Any], timeout_s: float) -> list[Any]:
        ready, _ = self.ray.wait(calls, num_returns=1, timeout=timeout_s)
        return list(ready)

    def stop(self, actor: Any) -> None:
        self.ray.kill(actor)


class WorkerDied(Exception):
    """A worker ended before its work did: killed, out of memory, or its machine is gone."""


def _check_answers(address: str) -> None:
    """Ray itself tries for minutes, and prints each time."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, ValueError, OverflowError) as error:
        what = getattr(error, "strerror", None) or "expected HOST:PORT, or auto"
        raise LastSeenError(
            f"--ray {address}: nothing answers there ({str(what).lower()}); start a cluster: ray start --head"
        ) from None


@contextmanager
def machines(address: str, cpus: int | None = None) -> Iterator[Machines]:
    """The cluster at an address; "auto": one on this machine, which ends with the block (`cpus`: as many as
    it may believe to have)."""
    if address in (AUTO, "local"):
        address = AUTO
        for name, value in LOCAL.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise LastSeenError("--ray needs Ray: pip install 'lastseen[ray]'") from None
    if ray.is_initialized():
        yield Machines(ray)
        return
    ray._private.worker._worker_logs_enabled = False  # it prints to stdout, where answers go
    if address != AUTO:
        _check_answers(address)
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "namespace": "lastseen"}
    with ExitStack() as held:
        try:
            if address == AUTO:
                # Its logs name files: they must not stay.
                logs = held.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
                options["object_store_memory"] = STORE_BYTES
                ray.init("local", num_cpus=cpus, include_dashboard=False, _temp_dir=logs, **options)
            else:
                ray.init(address, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
            what = (" ".join(str(error).split()) or type(error).__name__)[:160]
            if address == AUTO:
                raise LastSeenError(f"--ray auto: Ray cannot be started here ({what})") from None
            raise LastSeenError(
                f"--ray {address}: no Ray cluster answers there ({what}); start one: ray start --head"
            ) from None
        held.callback(ray.shutdown)
        where: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        if address == AUTO and not where.startswith("127."):
            raise LastSeenError(
                "--ray auto: this program imported Ray before, so it would listen to the network; set "
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before it does"
            )
        yield Machines(ray)
