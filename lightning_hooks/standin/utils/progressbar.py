"""mmcv's progress bar, and loops with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from multiprocessing import Pool
from shutil import get_terminal_size
from typing import Any

from lightning_hooks.standin.utils.timer import Timer

__all__ = ["ProgressBar", "init_pool", "track_iter_progress", "track_parallel_progress"]
__all__ += ["track_progress"]


class ProgressBar:
    """A progress bar with the number of completed tasks, the speed and the time left.

    Args:
        task_num: Number of tasks; 0 if unknown.
        bar_width: Width of the bar in characters.
        start: Whether the timer starts now.
        file: The open file to write to; the current standard output by default.
    """

    def __init__(
        self, task_num: int = 0, bar_width: int = 50, start: bool = True, file: Any = None
    ) -> None:
        self.task_num = task_num
        self.bar_width = bar_width
        self.completed = 0
        self.file = sys.stdout if file is None else file
        if start:
            self.start()

    @property
    def terminal_width(self) -> int:
        """Number of characters in a line of the terminal."""
        return get_terminal_size().columns

    def start(self) -> None:
        """Draw the empty bar and start the timer."""
        empty = f"[{' ' * self.bar_width}] 0/{self.task_num}, elapsed: 0s, ETA:"
        self._write(empty if self.task_num > 0 else "completed: 0, elapsed: 0s")
        self.timer = Timer()

    def update(self, num_tasks: int = 1) -> None:
        """Count completed tasks and redraw the bar."""
        if num_tasks <= 0:
            raise ValueError(f"num_tasks must be positive, got {num_tasks}")
        self.completed += num_tasks
        elapsed = self.timer.since_start()
        speed = self.completed / elapsed if elapsed > 0 else float("inf")
        seconds = int(elapsed + 0.5)
        if self.task_num <= 0:
            self._write(f"completed: {self.completed}, elapsed: {seconds}s, {speed:.1f} tasks/s")
            return
        share = self.completed / self.task_num
        left = int(elapsed * (1 - share) / share + 0.5)
        text = f"] {self.completed}/{self.task_num}, {speed:.1f} task/s, "
        text += f"elapsed: {seconds}s, ETA: {left:5}s"
        room = min(self.terminal_width - len(text) - 2, int(self.terminal_width * 0.6))
        width = max(2, min(self.bar_width, room))
        self._write("\r[" + ">" * int(width * share) + " " * (width - int(width * share)) + text)

    def _write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()


def _sized(tasks: Any) -> tuple[Iterable[Any], int]:
    if isinstance(tasks, tuple) and len(tasks) == 2 and isinstance(tasks[1], int):
        return tasks
    if isinstance(tasks, Iterable) and isinstance(tasks, Sized):
        return tasks, len(tasks)
    raise TypeError(f"tasks must have a length, or be a pair (iterable, length), got {tasks!r}")


def track_iter_progress(tasks: Any, bar_width: int = 50, file: Any = None) -> Iterator[Any]:
    """Yield the tasks with a progress bar."""
    items, number = _sized(tasks)
    bar = ProgressBar(number, bar_width, file=file)
    for task in items:
        yield task
        bar.update()
    bar.file.write("\n")


def track_progress(
    func: Callable[..., Any], tasks: Any, bar_width: int = 50, file: Any = None, **kwargs: Any
) -> list[Any]:
    """Return ``func(task, **kwargs)`` of every task, with a progress bar."""
    return [func(task, **kwargs) for task in track_iter_progress(tasks, bar_width, file)]


def init_pool(
    process_num: int,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] | None = None,
) -> Any:
    """Make a pool of processes."""
    if initargs is not None and not isinstance(initargs, tuple):
        raise TypeError(f"initargs must be a tuple, got {initargs!r}")
    return Pool(process_num, initializer, initargs or ())


def track_parallel_progress(
    func: Callable[[Any], Any],
    tasks: Any,
    nproc: int,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] | None = None,
    bar_width: int = 50,
    chunksize: int = 1,
    skip_first: bool = False,
    keep_order: bool = True,
    file: Any = None,
) -> list[Any]:
    """Return ``func(task)`` of every task, run in several processes, with a progress bar.

    Args:
        func: The function, which must be picklable.
        tasks: The tasks, with a length or as ``(iterable, length)``.
        nproc: Number of processes.
        initializer: Function called at the start of each process.
        initargs: Arguments of ``initializer``.
        bar_width: Width of the bar in characters.
        chunksize: Number of tasks sent to a process at once.
        skip_first: Whether the first round of tasks, while processes start, is not timed.
        keep_order: Whether the results are in the order of the tasks.
        file: The open file to write to.
    """
    items, number = _sized(tasks)
    untimed = nproc * chunksize if skip_first else 0
    bar = ProgressBar(number - untimed, bar_width, start=not skip_first, file=file)
    results = []
    with init_pool(nproc, initializer, initargs) as pool:
        for result in (pool.imap if keep_order else pool.imap_unordered)(func, items, chunksize):
            results.append(result)
            if len(results) == untimed:
                bar.start()
            elif len(results) > untimed:
                bar.update()
    bar.file.write("\n")
    return results
