"""Reductions: what a map computes in passes over its whole rows, several statistics at once, and keeps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from headwise.maps import device_summary
from headwise.maps.result_cache import Answer, Question, ResultCache
from headwise.maps.rows import RowBlock, read_rows
from headwise.maps.statistics import (
    Flow,
    Largest,
    Picture,
    Statistic,
    Statistics,
    Summary,
    rows_in_use,
    summarize,
)
from headwise.maps.strips import exact
from headwise.maps.transforms import refuse_in_torch_func
from headwise.maps.weights import Sums, WeightMap
from headwise.ops.call import transformed


class Reductions(WeightMap):
    """The statistics of the weights of one call, without a way back to them but that of `WeightMap`."""

    # the summary and the log-sums, once they are known
    _kept: dict[str, Any]
    _answers: ResultCache
    _passed_lse: Tensor | None

    @abstractmethod
    def max_logit(self) -> Tensor:
        """The largest score of each head that a query may see, (B, Hq)."""

    def statistics(
        self, *, pooled: tuple[int, int] | None = None, how: str = "mean", topk: int | None = None
    ) -> Statistics:
        """Several statistics from one pass over the map, each as the method of its name gives it, then and later.

        pooled: h and w of a picture, by the mean or the maximum (how); topk: how many weights of each row; None: not
        wanted. A statistic alone takes a pass too; what a pass has given is kept, so that a second look takes none.

        >>> import torch, headwise as hw
        >>> m = hw.attention_map(torch.randn(1, 2, 64, 8), torch.randn(1, 2, 64, 8))
        >>> found = m.statistics(pooled=(16, 16), topk=3)
        >>> found.entropy.shape, found.pooled.shape, found.topk[0].shape
        (torch.Size([1, 2, 64]), torch.Size([1, 2, 16, 16]), torch.Size([1, 2, 64, 3]))
        """
        questions: list[Question] = []
        if pooled is not None:
            questions.append((Picture, *self._checked_picture(*pooled, how)))
        if topk is not None:
            questions.append((Largest, self._checked_k(topk)))
        if not self._is_transformed():
            self.reduce(*questions)
        return Statistics(
            self.entropy(), self.received(), self.distance(), self.max_logit(),
            None if pooled is None else self.pooled(*pooled, how=how), None if topk is None else self.topk(topk),
        )  # fmt: skip

    def mass(self) -> Tensor:
        """The sum of each row, (B, Hq, Lq): 1, less where a sink takes its share, 0 where it may attend to nothing."""
        return self._read_sums().mass

    def weighted_rows(self, factors: Tensor) -> Tensor:
        """The sums over the rows of the weights times a factor for each query: (B, Lq) -> (B, Hq, Lk), no gradients.

        Of factors that are all 1 it is `received()`.
        """
        self._ready()
        refuse_in_torch_func("weighted_rows()")
        with exact(self._call):
            rows, within = rows_in_use(factors.detach())
            flow = Flow(self._call, factors.detach().to(self.dtype), within)
            if rows.stop > rows.start:
                self._read([flow], rows)
            return flow.result()[0]

    def _is_transformed(self) -> bool:
        return transformed(self._call)

    def _summary(self) -> Summary:
        """What every pass gives, without gradients, kept."""
        if "summary" not in self._kept:
            self._read([])
        summary: Summary = self._kept["summary"]
        return summary

    def _sums(self) -> Sums:
        summary = self._summary()
        return Sums(summary.entropy, summary.mass, summary.received.to(self.dtype))

    def reduce(self, *questions: Question) -> list[Answer]:
        """What these statistics give, without gradients, from one pass for all that is not kept.

        A question is a class of `Statistic` and what it is made of beside the call. The answers are the caller's own.
        """
        self._ready()
        refuse_in_torch_func("reduce()")
        answers = {question: self._answers.get(question) for question in questions}
        # what is kept must serve under any mode, as that of inference
        with exact(self._call):
            missing = {asked: asked[0](self._call, *asked[1:]) for asked, answer in answers.items() if answer is None}
            if missing or "summary" not in self._kept:
                self._read(list(missing.values()))
            for question, statistic in missing.items():
                answers[question] = statistic.result()
                self._answers.put(question, statistic.result())
        return [answer for answer in answers.values() if answer is not None]

    def _read(self, statistics: Sequence[Statistic], rows: slice | None = None) -> None:
        """Run one pass for these statistics, and for the summary where it is not known; rows: some, None: all."""

        def add(block: RowBlock) -> None:
            for statistic in statistics:
                statistic.add(block)

        with exact(self._call):
            if "summary" in self._kept or rows is not None:
                read_rows(self._call, add, rows=rows)
                return
            # the passed lse enters neither, so that what is read of whole rows does not depend on it
            by_kernels = device_summary.is_taken(self._call)
            summary = device_summary.summarize(self._call) if by_kernels else summarize(self._call, statistics)
            self._kept["summary"] = summary
            if self._passed_lse is None:
                self._kept["sums"] = summary.sums
            if by_kernels and statistics:
                read_rows(self._call, add)

    def _largest(self, k: int) -> tuple[Tensor, Tensor]:
        if transformed(self._call):
            return super()._largest(k)
        values, keys = self.reduce((Largest, k))[0]
        return values, keys

    def _picture(self, h: int, w: int, how: str) -> Tensor:
        return self.reduce((Picture, h, w, how))[0][0]
