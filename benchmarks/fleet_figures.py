"""What a simulated fleet measured, summed up and told."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.fleet_claimers import Times


@dataclass(kw_only=True, slots=True)
class Figures:
    """What one simulation measured; seconds unless said otherwise."""

    environment: dict[str, Any]
    plan: dict[str, float] = field(default_factory=dict)
    sweeps: list[tuple[float, int]] = field(default_factory=list)  #: seconds, messages sent
    progress: list[float] = field(default_factory=list)
    connections: int = 0  #: highest number seen at the server
    opened: int = 0  #: by all claimers, ever
    times: list[Times] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  #: bytes, of tables with their indexes
    statements: dict[str, float] = field(default_factory=dict)  #: of the server, per second


def summarise(figures: Figures, chosen: dict[str, Any]) -> dict[str, Any]:
    """The figures as they are printed and kept."""
    shards = -(-chosen["items"] // chosen["shard_size"])
    worked = [one for one in figures.times if one.computed]
    span = max(one.last for one in worked) - min(one.first for one in worked)
    walls = np.array([one.last - one.first for one in worked])
    slept = np.array([one.computed for one in worked])
    commits = [second for one in worked for second in one.commits]
    written = sum(size for name, size in figures.sizes.items() if name != "database")
    return {
        "asked": {name: value for name, value in chosen.items() if name != "json"},
        "environment": figures.environment,
        "plan": figures.plan,
        "shards": shards,
        "committed": len(commits),
        "seconds": span,
        "items_per_second": chosen["items"] / span,
        "shards_per_second": shards / span,
        "claim": _spread([second for one in figures.times for second in one.claims]),
        "claim in vain": _spread([second for one in figures.times for second in one.vain]),
        "commit": _spread(commits),
        "sweep": _spread([seconds for seconds, _ in figures.sweeps]),
        "progress": _spread(figures.progress),
        "lost": {
            "mean": float(1 - slept.sum() / walls.sum()),
            "worst": float((1 - slept / walls).max()),
        },
        "hints": sum(sent for _, sent in figures.sweeps),
        "messages": sum(one.messages for one in figures.times),
        "transactions_per_second": figures.statements["transactions"],
        "connections": figures.connections,
        "opened": figures.opened,
        "sizes": figures.sizes,
        "bytes_per_item": written / chosen["items"],
        "errors": [error for one in figures.times for error in one.errors],
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"count": 0}
    median, p99 = np.percentile(seconds, [50, 99])
    return {
        "count": len(seconds),
        "median_ms": 1000 * float(median),
        "p99_ms": 1000 * float(p99),
        "highest_ms": 1000 * max(seconds),
    }


def reported(summary: dict[str, Any]) -> Iterator[str]:
    """The lines to print."""
    chosen, plan = summary["asked"], summary["plan"]
    shown = ", ".join(f"{name} {value}" for name, value in summary["environment"].items())
    yield (
        f"{chosen['items']} items, {summary['shards']} shards of {chosen['shard_seconds']:g} s, "
        f"{chosen['claimers']} claimers in {chosen['processes']} processes, rows: {chosen['write']}"
    )
    yield f"server: {shown}"
    yield (
        f"plan: snapshot {plan['snapshot']:.2f} s, cut {plan['cut']:.3f} s, "
        f"run and shards inserted {plan['insert']:.2f} s"
    )
    yield (
        f"work: {summary['seconds']:.1f} s, {summary['shards_per_second']:.1f} shards/s, "
        f"{summary['items_per_second']:.0f} items/s, "
        f"{summary['transactions_per_second']:.0f} transactions/s"
    )
    for name in ("claim", "claim in vain", "commit", "sweep", "progress"):
        one = summary[name]
        if one["count"]:
            yield (
                f"{name:14} {one['count']:7d} times, median {one['median_ms']:8.2f} ms, "
                f"p99 {one['p99_ms']:8.2f} ms, highest {one['highest_ms']:8.2f} ms"
            )
    yield (
        f"time of workers that was not computing: {summary['lost']['mean']:.2%}, "
        f"the worst {summary['lost']['worst']:.2%}"
    )
    yield f"messages: {summary['hints']} sent, {summary['messages']} taken"
    yield (
        f"connections: {summary['connections']} at most, "
        f"{summary['connections'] / chosen['claimers']:.1f} a claimer; {summary['opened']} opened"
    )
    sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in summary["sizes"].items())
    yield f"size: {sizes}; {summary['bytes_per_item']:.0f} bytes an item"
    yield from (f"error: {error}" for error in summary["errors"][:10])
