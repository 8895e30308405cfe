"""Longest common subsequence of two sequences of numbers (Myers' O(ND) algorithm)."""

from collections.abc import Sequence

MOST_EDITS = 500
"""Edits after which the search is given up: the sequences have too little in common."""


def common_subsequence(
    left: Sequence[int], right: Sequence[int], most_edits: int = MOST_EDITS
) -> list[tuple[int, int]]:
    """Index pairs of equal items, increasing on both sides, as many as there can be.

    After ``most_edits`` edits only the common beginning and end are given.
    """
    shorter = min(len(left), len(right))
    head = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    tail = next((i for i in range(shorter - head) if left[-1 - i] != right[-1 - i]), shorter - head)
    middle = _myers(left[head : len(left) - tail], right[head : len(right) - tail], most_edits)
    pairs = [(i, i) for i in range(head)]
    pairs += [(i + head, j + head) for i, j in middle]
    pairs += [(len(left) - i, len(right) - i) for i in range(tail, 0, -1)]
    return pairs


def _myers(left: Sequence[int], right: Sequence[int], most_edits: int) -> list[tuple[int, int]]:
    ends = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(left) + len(right), most_edits) + 1):
        history.append(ends.copy())
        for diagonal in range(-edits, edits + 1, 2):
            x = _step_start(ends, diagonal, edits)
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            ends[diagonal] = x
            if x >= len(left) and y >= len(right):
                return _walk_back(history, len(left), len(right))
    return []


def _step_start(ends: dict[int, int], diagonal: int, edits: int) -> int:
    """Where an edit lands on a diagonal: from above (insert) or from the left (delete)."""
    below, above = ends.get(diagonal + 1, -1), ends.get(diagonal - 1, -1)
    if diagonal == -edits or (diagonal != edits and above < below):
        return below
    return above + 1


def _walk_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        diagonal = x - y
        start = _step_start(history[edits], diagonal, edits)
        while x > start:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        if edits:
            came_from_above = start == history[edits].get(diagonal + 1, -1) and (
                diagonal == -edits
                or (
                    diagonal != edits
                    and history[edits].get(diagonal - 1, -1) < history[edits].get(diagonal + 1, -1)
                )
            )
            x, y = (start, y - 1) if came_from_above else (start - 1, y)
    return pairs[::-1]
