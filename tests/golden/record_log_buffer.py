"""Record the averages of mmcv's LogBuffer over random histories."""

import random
from typing import Any

from oracle import LogBuffer

COUNT = 40
KEYS = ("loss", "acc", "time", "sometimes")


def draw_value(rng: random.Random) -> float:
    """Draw a value of any size, rarely a non-finite value."""
    if rng.random() < 0.01:
        return rng.choice([float("nan"), float("inf"), float("-inf")])
    return rng.choice([rng.uniform(-1, 1), 10 ** rng.uniform(-12, 12), rng.randint(0, 9)])


def draw_calls(rng: random.Random) -> list[list[Any]]:
    """Draw calls on a buffer: mostly updates, with some averages and clears."""
    # Long histories too: numpy sums eight or more numbers in another order than a loop does.
    calls: list[list[Any]] = []
    for _ in range(rng.choice([3, 10, 40])):
        keys = [key for key in KEYS if key != "sometimes" or rng.random() < 0.3]
        calls.append(["update", {key: draw_value(rng) for key in keys}, rng.randint(1, 64)])
        if rng.random() < 0.2:
            calls.append(["average", rng.choice([0, 1, 3, 8, 20, 1000])])
        if rng.random() < 0.05:
            calls.append(["clear"])
        if rng.random() < 0.05:
            calls.append(["clear_output"])
    return [*calls, ["average", 0]]


def replay(calls: list[list[Any]]) -> list[dict[str, float]]:
    """Apply the calls to a real buffer; return the output after each average."""
    buffer = LogBuffer()
    outputs = []
    for name, *arguments in calls:
        getattr(buffer, name)(*arguments)
        if name == "average":
            outputs.append({key: float(value) for key, value in buffer.output.items()})
    return outputs


def record() -> dict[str, Any]:
    """Record every case."""
    rng = random.Random(0)
    histories = [draw_calls(rng) for _ in range(COUNT)]
    return {"cases": [{"calls": calls, "outputs": replay(calls)} for calls in histories]}
