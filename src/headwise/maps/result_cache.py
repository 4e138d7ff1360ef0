"""Result cache: results of a map, in no more memory than its queries and keys take, or 4 MiB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from headwise.ops.call import Call

# of a small map, room for some pictures and rankings of it
LEAST_BYTES = 1 << 22
# a class of Statistic, and its parameters
Question = tuple[Any, ...]
Answer = tuple[Tensor, ...]


class ResultCache:
    """Answers returned again, as copies, of so many bytes; the oldest are forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = max(LEAST_BYTES, most)
        self._answers: dict[Question, Answer] = {}

    @staticmethod
    def beside(call: Call) -> ResultCache:
        """Room for as much as the queries and keys of a call take."""
        return ResultCache(_bytes((call.q, call.k)))

    def get(self, question: Question) -> Answer | None:
        """Copies of the answer, None where it is not kept."""
        answer = self._answers.get(question)
        return None if answer is None else tuple(t.clone() for t in answer)

    def put(self, question: Question, answer: Answer) -> None:
        """Keep copies of an answer, if there is room for it."""
        size = _bytes(answer)
        if size > self._most:
            return
        while self._answers and sum(map(_bytes, self._answers.values())) + size > self._most:
            del self._answers[next(iter(self._answers))]
        self._answers[question] = tuple(t.clone() for t in answer)

    def changed(self, change: Callable[[Tensor], Tensor]) -> ResultCache:
        """The same with every tensor changed."""
        again = object.__new__(ResultCache)
        again._most = self._most
        again._answers = {question: tuple(map(change, answer)) for question, answer in self._answers.items()}
        return again


def _bytes(tensors: Answer) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
