"""Shards of one run worked on as a worker's pool does: in threads, as many as there is room for."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from workers.claim_to_commit import Device, End, Workbench


class ShardPool:
    """Threads around the device of a workbench, and how each shard ended, in the order of ends."""

    def __init__(self, bench: Workbench) -> None:
        bench.device = Device(ThreadPoolExecutor(1, "device"))
        self.bench = bench
        self.ends: list[tuple[int, End]] = []
        self.errors: dict[int, BaseException] = {}
        self.most = 0  #: shards in hand at once

    def work(self, run_id: str, indices: Iterable[int]) -> dict[int, End]:
        """Work on these shards, one message each; how they ended, by index."""
        waiting, in_hand = list(indices), set[Future[None]]()
        with ThreadPoolExecutor(3, "shard") as threads:
            while waiting or in_hand:
                in_hand = {one for one in in_hand if not one.done()}
                if waiting and len(in_hand) < self.bench.device.room:
                    in_hand.add(threads.submit(self._work, run_id, waiting.pop(0)))
                self.most = max(self.most, len(in_hand))
                time.sleep(0.002)
        return dict(self.ends)

    def _work(self, run_id: str, index: int) -> None:
        try:
            self.ends.append((index, self.bench.work(run_id, index)))
        except BaseException as error:  # noqa: BLE001 - kept for the test
            self.errors[index] = error
