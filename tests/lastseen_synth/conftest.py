"""Asset libraries shared by all tests of this folder: an asset is drawn once per session."""

import pytest

from lastseen_synth.procedural import procedural_library


@pytest.fixture(scope="session")
def drawn_library():
    return procedural_library()


@pytest.fixture(scope="session")
def train_library(drawn_library):
    return drawn_library.split("train")


@pytest.fixture(scope="session")
def val_library(drawn_library):
    return drawn_library.split("val")
