"""How the blocks of a grid are distributed over the multiprocessors (SMs) of a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waves:
    """A grid on a GPU, with no other work there.

    even: all blocks compute equally much. Only then does the SM with most blocks give a bound.
    """

    blocks: int
    per_sm: int  # blocks that an SM can hold at a time
    sms: int
    even: bool

    @property
    def idle_sms(self) -> int:
        """SMs that never have a block."""
        return max(self.sms - self.blocks, 0)

    @property
    def waves(self) -> float:
        """The grid in units of the blocks that all SMs together hold at a time."""
        return self.blocks / (self.per_sm * self.sms)

    @property
    def most_per_sm(self) -> int:
        """The least number of blocks that the busiest SM executes, over the whole launch."""
        return -(-self.blocks // self.sms)

    @property
    def share(self) -> float:
        """An upper bound on the share of the GPU's arithmetic that the grid can use.

        The launch lasts as long as the busiest SM. At most `blocks` SMs work; if the blocks are
        equal, the busiest has at least `most_per_sm` of them.
        """
        if self.even:
            return self.blocks / (self.sms * self.most_per_sm)
        return min(self.blocks, self.sms) / self.sms
