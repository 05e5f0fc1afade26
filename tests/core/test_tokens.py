"""Tokens: the figures of the documentation, exactness, and what must not be mixed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core import tokens

SIDE = st.integers(1, 4096)


def test_an_epoch_of_coco_at_640() -> None:
    assert tokens.tokens_of_epochs(118_287, 640, 640) == 48_450_355_200


def test_the_last_short_batch_counts_what_it_holds() -> None:
    assert tokens.tokens([(64, 640, 640)] * 15 + [(40, 640, 640)]) == tokens.tokens_of_epochs(1000, 640, 640)


def test_no_iterations_no_tokens() -> None:
    assert tokens.tokens([]) == 0


@given(images=st.integers(0, 10**9), height=SIDE, width=SIDE, epochs=st.integers(0, 10_000))
def test_epochs_are_exact_whole_numbers(images: int, height: int, width: int, epochs: int) -> None:
    assert (
        tokens.tokens_of_epochs(images, height, width, epochs)
        == tokens.tokens([(images, height, width)] * min(epochs, 1)) * epochs
    )


def test_the_rate_of_142_5_images_a_second() -> None:
    assert tokens.rate_mtok_s(142.5, 640, 640) == pytest.approx(58.368, rel=1e-12)
    assert tokens.rate_mtok_s(0, 640, 640) == 0


@given(images=st.integers(1, 10**7), side=SIDE)
def test_normalised_tokens_of_square_input_do_not_depend_on_the_size(images: int, side: int) -> None:
    assert tokens.equivalent_640(tokens.tokens_of_epochs(images, side, side), side) == images * 640 * 640


def test_effective_tokens_and_gpu_time() -> None:
    assert tokens.alpha(5.1e9, 8.7e9) == pytest.approx(0.586206896551724)
    assert tokens.effective_tokens(1e9, tokens.alpha(1, 1)) == 1e9
    assert tokens.gpu_seconds(0.0042, 48_450_355_200) == pytest.approx(203.49149184)
    assert tokens.buffered(1000, 0.2) == 1200


def test_the_figure_of_the_article_is_not_what_its_formula_gives() -> None:
    got = tokens.compute_tokens_article(11e6, 640, 640, 32, 100)
    assert got == 7.20896e16
    assert got / 5.4e12 == pytest.approx(13_349.9, rel=1e-5)
    assert tokens.compute_tokens_article(11e6, 640, 640, 32, 100, bytes_factor=1) == got / 2
