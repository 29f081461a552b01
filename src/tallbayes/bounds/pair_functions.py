"""Functions of a pair (w, w') of whitened positions from which bounds are made, all symmetric in the pair to the bit."""

from __future__ import annotations

import math

import numpy as np

from tallbayes.compile import inlinable

ANGLES = 48
_COSINES = np.cos(np.arange(ANGLES) * math.pi / ANGLES)
_SINES = np.sin(np.arange(ANGLES) * math.pi / ANGLES)
PAD = 1.0 / math.cos(3.0 * math.pi / (2.0 * ANGLES))  # a cubic trigonometric polynomial between grid points (Riesz)
OVERFLOW = 600.0  # largest exponent for which psi is used


@inlinable
def _in_order(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether a pair stands in its canonical (lexicographic) order."""
    for j in range(first.size):
        if first[j] != second[j]:
            return first[j] < second[j]
    return True


@inlinable
def angular(first: np.ndarray, second: np.ndarray) -> float:
    """g: padded maximum over 48 directions of |u'^3 - u^3|, from the pair in canonical order: symmetric to the bit."""
    if not _in_order(first, second):
        first, second = second, first
    d = first.size
    sum_square, gap_square, product = 0.0, 0.0, 0.0
    first_square, second_square = 0.0, 0.0
    for j in range(d):
        total, gap = first[j] + second[j], second[j] - first[j]
        sum_square += total * total
        gap_square += gap * gap
        product += total * gap
        first_square += first[j] * first[j]
        second_square += second[j] * second[j]
    size = math.sqrt(first_square) + math.sqrt(second_square)
    if size == 0.0 or gap_square == 0.0:
        return 0.0
    if sum_square + gap_square == np.inf:  # an overflow: no bound, rather than a NaN that compares as none
        return np.inf
    if math.sqrt(sum_square) < 1e-8 * size:  # opposite points: the line through them is the frame
        half = 0.5 * math.sqrt(gap_square)
        x, y, x_other, y_other = -half, 0.0, half, 0.0
    else:
        length = math.sqrt(sum_square)
        along = product / length
        across = math.sqrt(max(0.0, gap_square - along * along))
        x, x_other = 0.5 * (length - along), 0.5 * (length + along)
        y, y_other = -0.5 * across, 0.5 * across
    largest = 0.0
    for k in range(ANGLES):
        u = x * _COSINES[k] + y * _SINES[k]
        v = x_other * _COSINES[k] + y_other * _SINES[k]
        largest = max(largest, abs((v - u) * (u * u + u * v + v * v)))
    return PAD * largest


@inlinable
def quartic(first: np.ndarray, second: np.ndarray) -> float:
    """g4: the largest of |u'|u'|^3 - u|u|^3| over projections of the pair, from 48 directions and what it can rise between them.

    From the pair in canonical order, as `angular`. It is no trigonometric polynomial: between directions its second derivative is bounded.
    """
    if not _in_order(first, second):
        first, second = second, first
    sum_square, gap_square, product = 0.0, 0.0, 0.0
    first_square, second_square = 0.0, 0.0
    for j in range(first.size):
        total, gap = first[j] + second[j], second[j] - first[j]
        sum_square += total * total
        gap_square += gap * gap
        product += total * gap
        first_square += first[j] * first[j]
        second_square += second[j] * second[j]
    size, distance = math.sqrt(max(first_square, second_square)), math.sqrt(gap_square)
    if size == 0.0 or gap_square == 0.0:
        return 0.0
    if sum_square + gap_square == np.inf:
        return np.inf
    if math.sqrt(sum_square) < 1e-8 * size:
        x, y, x_other, y_other = -0.5 * distance, 0.0, 0.5 * distance, 0.0
    else:
        length = math.sqrt(sum_square)
        along = product / length
        across = math.sqrt(max(0.0, gap_square - along * along))
        x, x_other = 0.5 * (length - along), 0.5 * (length + along)
        y, y_other = -0.5 * across, 0.5 * across
    largest = 0.0
    for k in range(ANGLES):
        u = x * _COSINES[k] + y * _SINES[k]
        v = x_other * _COSINES[k] + y_other * _SINES[k]
        largest = max(largest, abs(v * abs(v) ** 3 - u * abs(u) ** 3))
    return (1.0 + 1e-12) * (largest + 8.0 * (math.pi / (2.0 * ANGLES)) ** 2 * size**3 * distance)


@inlinable
def cubic(first: np.ndarray, second: np.ndarray) -> float:
    """|w' - w| (|w|^2 + |w'|^2 + w.w'): bounds the change of a cubic form of unit norm; symmetric to the bit."""
    gap, squares_first, squares_second, product = 0.0, 0.0, 0.0, 0.0
    for j in range(first.size):
        gap += (second[j] - first[j]) * (second[j] - first[j])
        squares_first += first[j] * first[j]
        squares_second += second[j] * second[j]
        product += first[j] * second[j]
    return math.sqrt(gap) * max(0.0, (squares_first + squares_second) + product)


@inlinable
def psi(radius: float) -> float:
    """2 (e^S - 1 - S) / S^2: how much the curvature of a self-concordant function can exceed its start, on average."""
    if radius < 1e-3:
        return 1.0 + radius / 3.0 + radius * radius / 12.0
    return 2.0 * (math.expm1(radius) - radius) / (radius * radius)


@inlinable
def psi4(radius: float) -> float:
    """6 (e^S - 1 - S - S^2 / 2) / S^3: the same for the third integral of the curvature."""
    if radius < 0.01:
        return 1.0 + radius / 4.0 + radius * radius / 20.0 + radius**3 / 100.0
    return 6.0 * (math.expm1(radius) - radius - 0.5 * radius * radius) / radius**3


@inlinable
def norm(vector: np.ndarray) -> float:
    """Euclidean length."""
    total = 0.0
    for j in range(vector.size):
        total += vector[j] * vector[j]
    return math.sqrt(total)
