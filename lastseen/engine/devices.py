"""Where a model computes: the GPU if there is one, or what was asked for, if it can be used."""

from __future__ import annotations

import torch

from lastseen.errors import LastSeenError


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def checked_device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise LastSeenError(f"device {name} cannot be used: {str(error).splitlines()[0]}; try cpu") from None
    return device
