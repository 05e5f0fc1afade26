"""Tokens: input pixels of training images, and the few figures derived from them (docs/maths.md, section 0).

A token is one input pixel of one training image as the network sees it. 1 MTok = 1e6 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

TOKENS_PER_MTOK = 1_000_000


def tokens(iterations: Iterable[tuple[int, int, int]]) -> int:
    """Tokens of iterations given as (images, height_px, width_px); the last short batch counts its real images."""
    return sum(images * height_px * width_px for images, height_px, width_px in iterations)


def tokens_of_epochs(images: int, height_px: int, width_px: int, epochs: int = 1) -> int:
    """Tokens of `epochs` passes over `images` images of one size; exact, in tokens."""
    return images * height_px * width_px * epochs


def rate_mtok_s(images_per_s: float, height_px: int, width_px: int) -> float:
    """Token rate in MTok/s from images per second."""
    return images_per_s * height_px * width_px / TOKENS_PER_MTOK


def equivalent_640(token_count: float, height_px: int) -> float:
    """Normalised tokens N x (640/H)^2, H the image height: for reading side by side only, never for k or budgets."""
    return float(Fraction(token_count) * 640 * 640 / (height_px * height_px))


def alpha(flops_pruned: float, flops_original: float) -> float:
    """Share of the FLOPs that is left after pruning (1 when nothing was pruned)."""
    return flops_pruned / flops_original


def effective_tokens(token_count: float, alpha_ratio: float) -> float:
    """Effective tokens alpha x N of a pruned model."""
    return token_count * alpha_ratio


def gpu_seconds(k_s_per_mtok: float, token_count: float) -> float:
    """GPU-seconds T = k x N, k in GPU-seconds per million tokens."""
    return k_s_per_mtok * token_count / TOKENS_PER_MTOK


def buffered(seconds: float, buffer_ratio: float) -> float:
    """Planned time with a buffer: T x (1 + b)."""
    return seconds * (1 + buffer_ratio)


def compute_tokens_article(
    params: float, height_px: int, width_px: int, batch: int, epochs: int, bytes_factor: float = 2
) -> float:
    """The "compute tokens" of an article: params x H x W x 2 x 2.5 x batch x epochs. Not comparable with tokens.

    The article's own example prints 5.4e12 where its formula gives 7.2e16; kept only so that it can be shown
    with a warning. `bytes_factor` is 2 for fp32 and 1 for 16 and 8 bit.
    """
    return params * height_px * width_px * bytes_factor * 2.5 * batch * epochs
