"""What the tests of the fleet do to a worker from inside; Python imports it by its name.

Only processes that a supervisor spawned, and the fresh ones of these, are touched. `CHAOS_FOLDER`
is where test and workers meet: a file `freeze` or `pause` there is taken by the first worker that
comes to a commit, which renames it to `frozen-<process>-<shard>-<attempt>` or `paused-...`. A file
`starve` is taken by the first that comes to a batch: for a while it may have next to no more memory
than it has.
"""

import os
import sys

if "CHAOS_FOLDER" in os.environ and (
    "--multiprocessing-fork" in sys.orig_argv
    or "-P" in sys.orig_argv
    or "CHAOS_EVERYWHERE" in os.environ
):
    import resource
    import signal
    import threading
    import time
    from pathlib import Path

    import torch
    from sqlalchemy import Engine, event

    from transexplain.models.loaded_model import LoadedModel
    from transexplain.store import results

    FOLDER = Path(os.environ["CHAOS_FOLDER"])
    SLOWLY = float(os.environ["CHAOS_SLOWLY"])  # seconds that every batch takes longer
    KILLS, HANGS, EATS, ENDS_PARENT = (
        os.environ.get(f"CHAOS_{name}") for name in ("KILLS", "HANGS", "EATS", "ENDS_PARENT")
    )
    ROOM, BITE = 2**30, 2**26  # bytes: what a worker may take, and how much the eater takes at once
    HUNGER, SCRAPS = 2.0, 2**20  # seconds and bytes of what `starve` does

    padded = LoadedModel.padded
    save = results.save
    saving = threading.local()

    def limit_memory(room=ROOM):
        """From here on this process may have so much more address space than it has now."""
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def starve():
        """Take memory away where that is wished, and give it back after a moment."""
        try:
            (FOLDER / "starve").rename(FOLDER / f"starved-{os.getpid()}")
        except FileNotFoundError:
            return
        threading.Timer(HUNGER, limit_memory, (2**50,)).start()
        limit_memory(SCRAPS)

    def eat():
        eaten = []
        while True:
            eaten.append(torch.ones(BITE // 4))

    def poisonous(self, encoded):
        """What moves a batch to the device, where its poison works."""
        ids = {one.item.id for one in encoded}
        move = padded(self, encoded)

        def moved():
            with (FOLDER / "batches").open("a", encoding="ascii") as file:
                file.write(f"{time.time()} {os.getpid()} {len(ids)}\n")
            time.sleep(SLOWLY)
            starve()
            if KILLS in ids:
                os.kill(os.getpid(), signal.SIGKILL)
            if ENDS_PARENT in ids:
                fresh = "-P" in sys.orig_argv
                os.kill(os.getppid() if fresh else os.getpid(), signal.SIGKILL)
                time.sleep(3)
            if HANGS in ids:
                time.sleep(3600)
            if EATS in ids:
                limit_memory()
                eat()
            return move()

        return moved

    def taken(wish, granted):
        try:
            (FOLDER / wish).rename(FOLDER / f"{granted}-{os.getpid()}-{saving.claim}")
        except FileNotFoundError:
            return False
        return True

    def slow_save(db, claim, result):
        saving.claim = f"{claim.shard.index}-{claim.attempt}"
        if taken("freeze", "frozen"):
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            return save(db, claim, result)
        finally:
            saving.claim = None

    @event.listens_for(Engine, "commit")
    def before_commit(connection):
        if getattr(saving, "claim", None) is not None and taken("pause", "paused"):
            while not (FOLDER / "go").exists():
                time.sleep(0.02)

    LoadedModel.padded = poisonous
    results.save = slow_save
