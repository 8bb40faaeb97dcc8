"""The two sets of graphs of Ali et al. 2022, section 5.1: digits as superpixels, and molecules."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.extras.graphs.molecules import BOND_KINDS, molecule_graph, read_molecule
from transexplain.extras.graphs.superpixels import superpixels

Graph = Mapping[str, Any]
SPLIT = ("train", "valid", "test")
SEGMENTS = 64  # SLIC makes up to 75 of them
#: shares of train, valid and test
DIGIT_SHARES, MOLECULE_SHARES = (0.8, 0.05, 0.15), (0.8, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class GraphSet:
    """Graphs with `label`, `id` and the inputs of a model, in three parts."""

    parts: dict[str, list[Graph]]
    classes: tuple[str, ...]
    edge_kinds: int = 0  #: kinds of edges that the model reads


def superpixel_digits(folder: Path, count: int | None = None) -> GraphSet:
    """The digits of `mnist_10k-*` below `folder`, shuffled; about `count` of them.

    Digits 0 to 4,999 are written more clearly than the others, so every part holds both.
    """
    pictures = _idx(folder / "mnist_10k-images-idx3-ubyte.gz")
    labels = _idx(folder / "mnist_10k-labels-idx1-ubyte.gz")
    order = np.random.default_rng(0).permutation(len(labels))
    ends = np.cumsum(np.rint(np.array(DIGIT_SHARES[:2]) * len(order)).astype(int))
    step = _step(len(order), count)
    parts = {
        name: [_digit(pictures[one], int(labels[one]), int(one)) for one in chosen[::step]]
        for name, chosen in zip(SPLIT, np.split(order, ends), strict=True)
    }
    return GraphSet(parts, tuple(str(number) for number in range(10)))


def _step(rows: int, count: int | None) -> int:
    """Every which row of each part is taken, so that a test row of few is a test row of all."""
    return max(1, rows // count) if count else 1


def picture_of(folder: Path, name: str) -> NDArray[np.float64]:
    """(28, 28) the picture of a digit by the id of its graph, 0 to 1."""
    return _idx(folder / "mnist_10k-images-idx3-ubyte.gz")[int(name)] / 255.0


def _digit(pixels: NDArray[np.uint8], label: int, number: int) -> Graph:
    graph = superpixels(pixels / 255.0, segments=SEGMENTS).graph
    return {**graph, "label": str(label), "id": str(number)}


def _idx(path: Path) -> NDArray[np.uint8]:
    """The array of bytes in a compressed IDX file."""
    raw = gzip.decompress(path.read_bytes())
    axes = raw[3]
    shape = np.frombuffer(raw, ">i4", count=axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def bace(folder: Path, count: int | None = None) -> GraphSet:
    """The molecules of `bace.csv` below `folder`, apart by scaffold; about `count` of them."""
    with (folder / "bace.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows = [{**row, "id": str(number)} for number, row in enumerate(rows)]
    step = _step(len(rows), count)
    places = scaffold_split([row["smiles"] for row in rows], MOLECULE_SHARES)
    parts = {
        name: [_molecule(rows[one]) for one in chosen[::step]]
        for name, chosen in zip(SPLIT, places, strict=True)
    }
    return GraphSet(parts, ("inactive", "inhibitor"), edge_kinds=len(BOND_KINDS))


def scaffold_split(
    smiles: Sequence[str], shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> tuple[NDArray[np.intp], ...]:
    """The places of the molecules of each part, so that no scaffold is in two parts.

    Scaffolds (Bemis and Murcko 1996) go to the parts from the largest to the smallest, each to
    the first part that has room for all of its molecules (Wu et al. 2018, section 3.2): the tests
    are on rare scaffolds. Of equal size the first in alphabetical order goes first, so that the
    order of the molecules, which are often sorted by class, does not matter. Raises ItemError
    `bad-smiles`.
    """
    from rdkit.Chem.Scaffolds import MurckoScaffold

    members: dict[str, list[int]] = defaultdict(list)
    for place, smile in enumerate(smiles):
        molecule = read_molecule(smile)
        # RDKit's Python code has no types
        scaffold = MurckoScaffold.MurckoScaffoldSmiles(mol=molecule)  # type: ignore[no-untyped-call]
        members[scaffold].append(place)
    room = [shares[0] * len(smiles), sum(shares[:2]) * len(smiles) - shares[0] * len(smiles)]
    parts: tuple[list[int], ...] = ([], [], [])
    for _, places in sorted(members.items(), key=lambda member: (-len(member[1]), member[0])):
        fitting = (part for part in (0, 1) if len(parts[part]) + len(places) <= room[part] + 1e-9)
        parts[next(fitting, 2)].extend(places)
    return tuple(np.array(sorted(part), dtype=np.intp) for part in parts)


def _molecule(row: Mapping[str, str]) -> Graph:
    graph = molecule_graph(row["smiles"])
    return {**graph, "label": ("inactive", "inhibitor")[int(row["Class"])], "id": row["id"]}


def inputs_of(graph: Graph, edge_kinds: int) -> dict[str, NDArray[Any]]:
    """What the model reads of a graph."""
    names = ("node_features", "distances", "degrees", *(["edge_kinds"] if edge_kinds else []))
    return {name: graph[name] for name in names}


def labels_of(graphs: Sequence[Graph], classes: Sequence[str]) -> NDArray[np.int64]:
    """(N,) class indices."""
    return np.array([classes.index(one["label"]) for one in graphs], dtype=np.int64)
