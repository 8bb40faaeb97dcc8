"""The checks of one shard: items drawn while it is explained, looked at again when it is done."""

from collections.abc import Collection, Sequence

from transexplain.bias.checked import Checked
from transexplain.bias.matching import Match
from transexplain.bias.sampling import generator
from transexplain.checking.randomised import Randomised
from transexplain.checking.removals import Removals
from transexplain.checking.swaps import Swaps
from transexplain.data.sampling import number
from transexplain.explaining import Explained
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, CheckPlan
from transexplain.supervision import Observer


class Checks:
    """Draws items, and of each text one of its mentions.

    An item is drawn by its row and a mention by its item alone, so that any cut into shards draws
    the same. What is removed and what is replaced is one and the same mention.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._check = check
        self._removals = Removals(plan, model)
        self._swaps = Swaps(plan, check, model) if check.swap else None
        self._randomised = Randomised(plan, check, model) if check.randomised else None

    def consider(self, done: Explained, matches: Sequence[Match], mentioned: bool) -> None:
        """Take note of an item that is drawn; `mentioned`: it has mentions of any kind."""
        item, check = done.item, self._check
        if item is None or number(item.index, check.seed) >= check.share * 2**64:
            return
        if not (matches or (mentioned and check.whole)):
            return
        if self._randomised is not None:
            self._randomised.consider(done)
        if matches and isinstance(item.content, str):
            random = generator("check", check.seed, item.id)
            match = matches[int(random.integers(len(matches)))]
            self._removals.consider(done, matches, match)
            if self._swaps is not None:
                self._swaps.consider(done, match, random)

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> Checked:
        """Look at the drawn items again; those `alone` (ids) share no batch.

        Raises Stopped where the observer asked to stop.
        """
        found = Checked()
        found.removals += self._removals.measure(observer, alone)
        if self._swaps is not None:
            found.swaps += self._swaps.measure(observer, alone)
        if self._randomised is not None:
            found.randomised.merge(self._randomised.measure(observer, alone))
        return found
