"""Molecules as graphs: atoms, bonds, substructures, the split by scaffold, and the folder."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from sklearn.datasets import load_digits

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError
from transexplain.extras.graphs.graph_files import structure
from transexplain.extras.graphs.graph_transformer import GraphTransformer
from transexplain.extras.graphs.molecules import (
    ATOM_FEATURES,
    BOND_KINDS,
    FUNCTIONAL_GROUPS,
    molecule_graph,
    molecule_svg,
    read_molecule,
)
from transexplain.extras.graphs.superpixels import EVEN, superpixels

PARACETAMOL = "CC(=O)Nc1ccc(O)cc1"


def test_atoms_and_bonds_are_those_of_the_molecule() -> None:
    graph = molecule_graph(f" {PARACETAMOL} ")
    assert graph["text"] == PARACETAMOL
    assert graph["node_names"][:4] == ["C", "C", "O", "N"]
    assert graph["node_names"][4:] == ["c", "c", "c", "c", "O", "c", "c"], "aromatic ones"
    features = graph["node_features"]
    assert features.shape == (11, len(ATOM_FEATURES))
    named = [
        {ATOM_FEATURES[place] for place in np.flatnonzero(row)} for row in features[[0, 2, 3, 4, 8]]
    ]
    assert named == [
        {"C", "3 hydrogens", "SP3"},
        {"O", "0 hydrogens", "SP2"},
        {"N", "1 hydrogens", "SP2"},
        {"C", "0 hydrogens", "SP2", "aromatic", "in a ring"},
        {"O", "1 hydrogens", "SP2"},
    ]
    kinds = graph["edge_kinds"]
    assert (kinds == kinds.T).all() and (np.diag(kinds) == 0).all()
    assert BOND_KINDS[kinds[1, 2] - 1] == "DOUBLE" and BOND_KINDS[kinds[4, 5] - 1] == "AROMATIC"
    assert ((kinds > 0).sum(1) == graph["degrees"]).all()
    assert graph["distances"][0, 8] == 7
    assert len(graph["edges"]) == 11
    ends = graph["node_positions"][graph["edges"]]
    sides = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    np.testing.assert_allclose(sides, 1.5, atol=0.1)  # bonds of a drawing are of one length


def test_charges_chirality_and_salts_are_read() -> None:
    charge = ATOM_FEATURES.index("charge")
    salt = molecule_graph("[Na+].[Cl-]")
    assert salt["node_features"][:, charge].tolist() == [1, -1]
    assert salt["node_features"][0, ATOM_FEATURES.index("another element")] == 1
    assert salt["distances"].tolist() == [[0, 2], [2, 0]]  # T where no path is
    left, right = (molecule_graph(one)["node_features"] for one in ("C[C@H](N)O", "C[C@@H](N)O"))
    chiral = [ATOM_FEATURES.index(f"chirality {one}") for one in "RS"]
    assert (left[1, chiral] != right[1, chiral]).all() and left[1, chiral].sum() == 1


def test_substructures_name_rings_and_functional_groups() -> None:
    found = {(group, tuple(atoms)): entity for group, atoms, entity in _groups(PARACETAMOL)}
    assert found[("aromatic ring", (4, 5, 6, 7, 9, 10))] == "c1ccccc1"
    assert found[("amide", (0, 1, 2, 3))] == "cNC(C)=O"
    assert found[("hydroxyl", (7, 8))] == "cc(O)c"
    assert {group for group, _ in found} == {"aromatic ring", "amide", "hydroxyl"}


def _groups(smiles: str) -> list[list]:
    return molecule_graph(smiles)["node_groups"]


@pytest.mark.parametrize(
    ("smiles", "group"),
    [
        ("CC(=O)NC", "amide"),
        ("CC(=N)N", "amidine or guanidine"),
        ("CCN", "amine"),
        ("Nc1ccccc1", "aromatic amine"),
        ("CC(=O)O", "carboxyl"),
        ("CC(=O)OC", "ester"),
        ("COC", "ether"),
        ("CCl", "halogen"),
        ("CO", "hydroxyl"),
        ("CC#N", "nitrile"),
        ("CS(=O)(=O)C", "sulfonyl"),
    ],
)
def test_every_functional_group_is_found_alone(smiles: str, group: str) -> None:
    assert {one[0] for one in _groups(smiles)} - {"aromatic ring"} == {group}
    assert group in FUNCTIONAL_GROUPS


@pytest.mark.parametrize("smiles", ["", "C1CC", "not a molecule", "C(C)(C)(C)(C)C"])
def test_what_is_no_molecule_says_so(smiles: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ItemError, match="molecule that RDKit") as caught:
        read_molecule(smiles)
    assert caught.value.kind == "bad-smiles"
    assert capfd.readouterr().err == ""


def test_without_rdkit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[molecules\]'"):
        read_molecule("CC")


def test_a_formula_has_the_colours_of_its_relevance(tmp_path: Path) -> None:
    graph = molecule_graph(PARACETAMOL)
    network = GraphTransformer(
        width=len(ATOM_FEATURES), classes=2, edge_kinds=len(BOND_KINDS), layers=1
    )
    network.save(tmp_path, ["inactive", "active"])
    [found] = te.explain(te.load_model(tmp_path), [graph])
    drawn = te.render.molecule(found)
    assert drawn == te.render.molecule(found, PARACETAMOL)
    assert drawn.startswith("<?xml") and "<svg" in drawn
    red, blue = (molecule_svg("CO", [sign, 0.0]) for sign in (1.0, -1.0))
    assert red != blue
    assert molecule_svg("CO", [1.0, 0.0]) == molecule_svg("CO", [3.0, 0.0])
    assert molecule_svg("CO", [1.0, 0.0], scale=3.0) == molecule_svg("CO", [2.0, 0.0], scale=6.0)
    with pytest.raises(ConfigurationError, match=r"shape \(2,\)"):
        molecule_svg("CCO", [1.0, 0.0])
    with pytest.raises(ConfigurationError, match="above 0"):
        molecule_svg("CO", [1.0, 0.0], scale=0.0)
    with pytest.raises(TypeError, match="takes one attribution"):
        te.render.molecule("CO")


def test_distances_and_degrees_are_those_of_the_shortest_paths() -> None:
    edges = np.random.default_rng(0).integers(9, size=(8, 2))
    graph = structure(edges, 9)
    joined = np.zeros((9, 9), dtype=bool)
    joined[tuple(edges.T)] = True
    joined = (joined | joined.T) & ~np.eye(9, dtype=bool)
    paths = shortest_path(joined, unweighted=True)
    assert graph["distances"].tolist() == np.where(np.isinf(paths), 9, paths).tolist()
    assert graph["degrees"].tolist() == joined.sum(axis=1).tolist()


# ---- pictures as graphs of superpixels


def picture(digit: int) -> np.ndarray:
    return np.kron(load_digits().images[digit] / 16, np.ones((4, 4)))


@pytest.mark.parametrize("digit", [0, 7])
def test_nodes_are_connected_parts_and_neighbours_are_joined(digit: int) -> None:
    shown = picture(digit)
    found = superpixels(shown, segments=40)
    nodes = found.parts.max() + 1
    assert 10 < nodes < 60
    assert sorted(np.unique(found.parts)) == list(range(nodes))
    graph = found.graph
    assert graph["node_features"].shape == (nodes, 3)
    pairs = set()
    for row in range(32):
        for col in range(32):
            for down, right in ((1, 0), (0, 1)):
                if row + down < 32 and col + right < 32:
                    one, other = found.parts[row, col], found.parts[row + down, col + right]
                    pairs |= {(min(one, other), max(one, other))} if one != other else set()
    assert {tuple(edge) for edge in graph["edges"].tolist()} == pairs
    for node in range(nodes):
        rows, cols = np.nonzero(found.parts == node)
        values = [shown[rows, cols].mean(), (rows.mean() + 0.5) / 32, (cols.mean() + 0.5) / 32]
        expected = [EVEN * (value - 0.5) for value in values]
        np.testing.assert_allclose(graph["node_features"][node], expected, atol=1e-5)
        np.testing.assert_allclose(
            graph["node_positions"][node], [cols.mean() + 0.5, rows.mean() + 0.5], rtol=1e-5
        )


def test_what_is_no_picture_and_a_missing_package_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"numbers, not \(4,\)"):
        superpixels(np.zeros(4))
    with pytest.raises(ConfigurationError, match="of finite numbers"):
        superpixels(np.full((8, 8), np.nan))
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[superpixels\]'"):
        superpixels(picture(0))
