"""A run's newest checkpoint, moved in pieces and put together again."""

import json

import checkpoint_parts
import pytest
import torch
from checkpoint_parts import pieces

from lastseen.train import checkpoint as checkpoints
from lastseen.train.checkpoint import Checkpoint, RunFolder


def test_a_run_moved_in_pieces_is_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoints, "PART_BYTES", 2000)
    monkeypatch.setattr(checkpoint_parts, "FILES", 3)
    folder = RunFolder(tmp_path / "run")
    folder.claim({"steps": 3})
    folder.log.write_text(json.dumps({"step": 3}) + "\n")
    weights = {f"w{n}": torch.randn(20, 20) for n in range(5)}
    folder.save(2, Checkpoint({"model": {"old": torch.zeros(1)}}, {}))
    folder.save(3, Checkpoint({"model": weights, "ema": weights}, {}))
    found = pieces(tmp_path / "run")
    assert len(found) > 3 and all(len(files) <= 3 for files in found)
    assert len({file for files in found for file in files}) == sum(map(len, found))
    for number in reversed(range(len(found))):
        moved = tmp_path / "moved"
        if number + 1 < len(found):  # the first piece, with the list of all, comes last
            with pytest.raises(SystemExit):
                pieces(moved)
        monkeypatch.setattr("sys.argv", ["", str(tmp_path / "run"), str(number), str(moved)])
        checkpoint_parts.main()
    step, again = RunFolder(tmp_path / "moved").latest()
    assert step == 3 and all(torch.equal(again.tensors["ema"][name], weights[name]) for name in weights)
    assert pieces(moved) == found
    (moved / "checkpoints" / "00000003" / "ema-1.safetensors").unlink()
    with pytest.raises(SystemExit, match=r"not whole: ema-1\.safetensors missing; copy the other pieces"):
        pieces(moved)
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "run"), "99", str(moved)])
    with pytest.raises(SystemExit):
        checkpoint_parts.main()
    assert "expected a piece from 0 to" in capsys.readouterr().err
