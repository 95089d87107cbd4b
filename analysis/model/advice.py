"""What a kernel's launch can reach, what limits it, and the cheapest change that helps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from analysis.model.parameters import Parameters, Workload, memory_capacity
from analysis.model.prediction import Model, Prediction
from analysis.model.queueing import QUEUEING

BLOCKS = (256, 128, 512, 192, 384, 64, 768, 1024)  # of equals the first is proposed
WIDTHS = (1, 2, 4, 8, 16)  # bytes that one lane can load at once
REGISTER_STEP = 8  # registers are granted in multiples of 8 a thread: programming guide
LEAST_REGISTERS = 24  # the assembler grants no fewer
MOST_REGISTERS = 255
DEEPEST_CUT = 0.25  # of the registers; what spills beyond is not modelled, so not advised
MOST_LOADS = 16
WORTH = 0.01  # a smaller gain is not advice

# What a change asks of the programmer, least first: a launch argument, an unrolled loop, a vector
# type with its alignment, a fight with the compiler.
EFFORT = ("block", "loads", "width", "registers")

Resident = Callable[[int, int], int]
"""(threads a block, registers a thread) -> resident warps an SM, 0 if the block does not fit."""


MOST_ALPHA = 1e9
"""Arithmetic instructions a word: beyond, a launch takes minutes, and any bandwidth is none."""


@dataclass(frozen=True)
class Launch:
    """What the programmer chose: threads a block, registers a thread, loads in flight, width."""

    threads: int
    registers: int
    loads: int = 1
    width: int = 4  # bytes a lane and load
    alpha: float = 0  # dependent arithmetic instructions on each word loaded

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise ValueError(f"a lane loads 1, 2, 4, 8 or 16 bytes at once, not {self.width}")
        if not 1 <= self.threads <= 1024:
            raise ValueError(f"a block has 1 to 1024 threads, not {self.threads}")
        if not 1 <= self.registers <= MOST_REGISTERS:
            raise ValueError(f"a thread has 1 to 255 registers, not {self.registers}")
        if self.loads < 1:
            raise ValueError(f"at least one load must be in flight, not {self.loads}")
        if not 0 <= self.alpha <= MOST_ALPHA:
            raise ValueError(
                f"a word takes 0 to {MOST_ALPHA:g} arithmetic instructions, not {self.alpha}"
            )

    @property
    def words(self) -> int:
        """Registers that the loads in flight fill; a narrow load still takes a whole one."""
        return self.loads * max(1, self.width // 4)

    def workload(self, warps: float) -> Workload:
        """Each word's chain runs beside the others: the path is alpha, the work alpha * words."""
        return Workload(
            warps=warps,
            loads=self.loads,
            bytes=32 * self.width,
            alpha=self.alpha,
            arithmetic=self.alpha * self.words,
        )


@dataclass(frozen=True)
class Change:
    """One change, what it leads to, and gain = bandwidth after / bandwidth before - 1."""

    kind: str  # one of EFFORT
    description: str
    launch: Launch
    warps: int
    share: float
    gain: float


@dataclass(frozen=True)
class Advice:
    """Resident warps, share of the peak of memory that they reach, and changes, best first."""

    launch: Launch
    warps: int
    share: float
    prediction: Prediction
    changes: tuple[Change, ...]

    @property
    def cheapest(self) -> Change | None:
        """The least effort, then the smallest step, that brings 90% of the best gain.

        None: nothing helps.
        """
        if not self.changes:
            return None
        enough = [c for c in self.changes if c.gain >= 0.9 * self.changes[0].gain]
        return min(enough, key=lambda change: (EFFORT.index(change.kind), change.gain))


def advise(
    parameters: Parameters, launch: Launch, resident: Resident, model: Model = QUEUEING
) -> Advice:
    """Predict a launch and its single changes, sorted by predicted gain.

    resident: the occupancy rule, given so that this function needs no table of its own.
    ValueError: the block does not fit an SM.
    """
    warps = resident(launch.threads, launch.registers)
    if warps < 1:
        raise ValueError(
            f"no block of {launch.threads} threads with {launch.registers} registers fits an SM: "
            "use fewer of either"
        )
    now = model.predict(parameters, launch.workload(warps))

    def share(candidate: Launch, prediction: Prediction) -> float:
        return prediction.throughput / peak(parameters, candidate)

    changes: list[Change] = []
    seen = set()
    for kind, description, candidate in _candidates(launch):
        new_warps = resident(candidate.threads, candidate.registers)
        effect = (kind, new_warps, candidate.loads, candidate.width)
        if new_warps < 1 or effect in seen:
            continue
        seen.add(effect)
        then = model.predict(parameters, candidate.workload(new_warps))
        gain = then.bandwidth / now.bandwidth - 1
        if gain >= WORTH:
            changes.append(
                Change(kind, description, candidate, new_warps, share(candidate, then), gain)
            )
    changes.sort(key=lambda change: (-change.gain, EFFORT.index(change.kind)))
    return Advice(launch, warps, share(launch, now), now, tuple(changes))


def peak(parameters: Parameters, launch: Launch) -> float:
    """Xm: memory's own limit in warp-loads per clock per SM."""
    return memory_capacity(parameters, launch.workload(1)).throughput


def _candidates(launch: Launch) -> Iterator[tuple[str, str, Launch]]:
    """Every single change. Data in flight must land in registers, so more of it costs them."""
    for threads in BLOCKS:
        if threads != launch.threads:
            yield "block", f"blocks of {threads} threads", replace(launch, threads=threads)
    wider = [
        ("loads", f"{loads} loads in flight", replace(launch, loads=loads))
        for loads in (launch.loads * 2, launch.loads * 4, launch.loads * 8)
        if loads <= MOST_LOADS
    ] + [
        ("width", f"{width}-byte loads", replace(launch, width=width))
        for width in WIDTHS
        if width > launch.width
    ]
    for kind, description, more in wider:
        used = launch.registers + more.words - launch.words
        if used <= MOST_REGISTERS:
            yield kind, f"{description} ({used} registers)", replace(more, registers=used)
    fewer = (launch.registers - 1) // REGISTER_STEP * REGISTER_STEP
    least = max(LEAST_REGISTERS, round(launch.registers * (1 - DEEPEST_CUT)))
    for used in range(fewer, least - 1, -REGISTER_STEP):
        yield "registers", f"{used} registers a thread", replace(launch, registers=used)
