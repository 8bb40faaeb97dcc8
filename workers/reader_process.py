"""What a process that reads and encodes does: parts come by a pipe, entries go back by it.

It ends when the pipe ends, that is with its parent, however that dies. It ignores signals that are
sent to the process group: its parent finishes the batch first. Where it hangs and no parent is left
to end it, it ends itself.
"""

import faulthandler
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import MutableSequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from transexplain.error_frames import keep_frames
from workers import logs
from workers.shared_arrays import Sender

if TYPE_CHECKING:
    from transexplain.explaining.reading import Entry, Part

#: what the memory that parent and child share holds
HAND, MOVES = range(2)  # the row in hand, or NOBODY; how often that changed
NOBODY = -1.0
JOBS = 2  #: runs that a process remembers


def serve(
    connection: Connection,
    hand: MutableSequence[float],
    deadline: float,
    logged: logs.Carried | None = None,
) -> None:
    """Read parts until the pipe ends; `deadline` in seconds is that of one item.

    `logged` is how the process logs that asks for them.
    """
    if logged is not None:
        logs.join(logged)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    import torch

    torch.set_num_threads(1)
    jobs: dict[str, Any] = {}
    sender = Sender(connection)
    try:
        connection.send(("ready",))
        while True:
            kind, key, content = connection.recv()
            if kind == "job":
                while len(jobs) >= JOBS:
                    del jobs[next(iter(jobs))]
                jobs[key] = _job(content)
                connection.send(("known",))
                continue
            if math.isfinite(deadline):
                faulthandler.dump_traceback_later(2 * deadline + 1, exit=True)
            part, free, known = content
            sender.released(free)
            with logs.fields(**known):
                found = _answer(jobs[key], part, hand)
            if isinstance(found, Exception):
                connection.send(("failed", found))
            else:
                sender.send(found)
            faulthandler.cancel_dump_traceback_later()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody asks any more


def _job(content: bytes) -> Any:
    """The job, and all that takes long the first time: no item is to be blamed for it."""
    from transexplain.data.source_files import verify
    from transexplain.errors import DataSourceError

    job = pickle.loads(content)
    with suppress(DataSourceError):  # told with the first part
        verify(job.plan.dataset)
    return job


def _answer(job: Any, part: "Part", hand: MutableSequence[float]) -> "list[Entry] | Exception":
    """The entries of a part, or why there are none: raised where the part was asked for."""
    from transexplain.explaining.reading import read_part

    def in_hand(row: int | None) -> None:
        hand[HAND] = NOBODY if row is None else float(row)
        hand[MOVES] += 1

    try:
        return read_part(job, part, in_hand)
    except Exception as error:  # noqa: BLE001 - whatever an item or its file may do
        return portable(error)
    finally:
        in_hand(None)


def portable(error: Exception) -> Exception:
    """The error, or what says the same where it cannot be sent, with its frames."""
    keep_frames(error)
    try:
        same = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does when it is made again
        same = None
    if type(same) is type(error):
        return error
    other = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    keep_frames(other)
    return other


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def context() -> Any:
    """How processes are begun: never by a fork of this one, which has threads and maybe a card."""
    if "forkserver" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    made = multiprocessing.get_context("forkserver")
    # what takes seconds to import is imported once, by the process that all others come from
    heavy = ["transexplain.explaining.packed_parts", "transformers.tokenization_utils_base"]
    made.set_forkserver_preload([*heavy, __name__])
    return made
