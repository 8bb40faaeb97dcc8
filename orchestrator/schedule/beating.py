"""What beat calls: the tick with its messages and verdicts, and the sweep."""

from collections.abc import Mapping

from orchestrator.dispatch import sweep
from orchestrator.schedule.tick import tick
from orchestrator.schedule.verdict_posts import deliver
from transexplain.settings import Settings
from transexplain.store.database import Database
from workers.beat import Duty


def duties(db: Database, settings: Settings, every: float) -> Mapping[str, Duty]:
    """The tick every `every` seconds, the sweep as often as it may."""

    def tick_and_tell() -> None:
        made = any(fired.run_id for fired in tick(db, settings))
        deliver(db)
        if made:  # last: a broker that is away holds up no verdict, and the sweep sends it later
            sweep.top_up(db, settings)

    return {
        "transexplain.tick": Duty(call=tick_and_tell, seconds=every),
        "transexplain.sweep": Duty(call=lambda: sweep.sweep(db, settings), seconds=sweep.EVERY),
    }
