"""Molecules as graphs of their atoms, read from SMILES by RDKit (extra `molecules`)."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, ItemError
from transexplain.extras.graphs.graph_files import structure
from transexplain.registry import require
from transexplain.reports.heatmap import colour

_ELEMENTS = ("C", "N", "O", "S", "F", "Cl", "Br", "I", "P")
_HYBRIDS = ("SP", "SP2", "SP3")
_MOST_HYDROGENS = 4
#: the features of an atom: one of each kind is 1, `charge` is in elementary charges
ATOM_FEATURES = (
    *_ELEMENTS,
    "another element",
    *(f"{count} hydrogens" for count in range(_MOST_HYDROGENS + 1)),
    *_HYBRIDS,
    "another hybridisation",
    "aromatic",
    "in a ring",
    "chirality R",
    "chirality S",
    "charge",
)
#: the kinds of edges, counted from 1
BOND_KINDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
#: functional groups by SMARTS; a match is one substructure
FUNCTIONAL_GROUPS: Mapping[str, str] = {
    "amide": "[NX3][CX3](=[OX1])[#6]",
    "amidine or guanidine": "[CX3](=[NX2,NX3+])[NX3]",
    "amine": "[NX3,NX4+;!$(N[#6,#16]=[#7,#8,#16]);!$(N-a)]-[CX4]",
    "aromatic amine": "[NX3H2]-a",
    "carboxyl": "[CX3](=[OX1])[OX2H1,OX1-]",
    "ester": "[#6][CX3](=[OX1])[OX2][#6]",
    "ether": "[#6;!$(C=O)][OX2][#6;!$(C=O)]",
    "halogen": "[F,Cl,Br,I]",
    "hydroxyl": "[OX2H1][#6;!$(C=O)]",
    "nitrile": "[CX2]#[NX1]",
    "sulfonyl": "[SX4](=[OX1])(=[OX1])",
}


def read_molecule(smiles: str) -> Any:
    """The molecule of RDKit; ItemError `bad-smiles` for a text that is none.

    Raises ConfigurationError where RDKit is missing.
    """
    require("rdkit", "molecules")
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():  # what is wrong goes into the error, not to the console
        molecule = Chem.MolFromSmiles(smiles.strip())
    if molecule is None or not molecule.GetNumAtoms():
        raise ItemError("bad-smiles", f"{smiles[:200]!r} is no molecule that RDKit reads")
    return molecule


def molecule_graph(smiles: str) -> dict[str, Any]:
    """A molecule as a graph of its T heavy atoms.

    Returns:
        `node_features` (T, F) as `ATOM_FEATURES` names them; `edge_kinds` (T, T), 0 or the place
        of the bond in `BOND_KINDS`, counted from 1; `distances` and `degrees` (T,) as
        `graph_files.structure` has them, which a model reads; and beside them `edges`,
        `node_names` (the element as SMILES has it, aromatic in lower case), `node_positions`
        (T, 2) of a drawing, `node_groups` as `substructures` finds them, and `text`, the SMILES.

    Raises ItemError `bad-smiles`, ConfigurationError where RDKit is missing.
    """
    molecule = read_molecule(smiles)
    from rdkit.Chem import rdDepictor

    atoms = list(molecule.GetAtoms())
    bonds = [
        (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), _kind(bond)) for bond in molecule.GetBonds()
    ]
    kinds = np.zeros((len(atoms), len(atoms)), dtype=np.int64)
    for begin, other, kind in bonds:
        kinds[begin, other] = kinds[other, begin] = kind
    rdDepictor.Compute2DCoords(molecule)
    places = np.asarray(molecule.GetConformer().GetPositions())[:, :2]
    return {
        "node_features": np.array([_features(atom) for atom in atoms], dtype=np.float32),
        "edge_kinds": kinds,
        **structure([bond[:2] for bond in bonds], len(atoms)),
        "node_names": [
            atom.GetSymbol().lower() if atom.GetIsAromatic() else atom.GetSymbol() for atom in atoms
        ],
        "node_positions": (places * (1, -1)).astype(np.float32),
        "node_groups": substructures(molecule),
        "text": smiles.strip(),
    }


def substructures(molecule: Any) -> list[list[Any]]:
    """Rings and functional groups of a molecule of RDKit, as entries [group, atoms, entity].

    A ring's group is `aromatic ring` or `aliphatic ring` and its entity the SMILES of its atoms; a
    functional group is a match of `FUNCTIONAL_GROUPS`, its entity the SMILES of its atoms and of
    those next to them, for the same group differs by what it hangs on. An atom may be in several.
    """
    from rdkit import Chem

    substructures = []
    for ring in molecule.GetRingInfo().AtomRings():
        aromatic = all(molecule.GetAtomWithIdx(place).GetIsAromatic() for place in ring)
        group = "aromatic ring" if aromatic else "aliphatic ring"
        entity = Chem.MolFragmentToSmiles(molecule, ring, isomericSmiles=False)
        substructures.append([group, sorted(ring), entity])
    for group, pattern in _patterns().items():
        for match in molecule.GetSubstructMatches(pattern):
            around = {
                near.GetIdx()
                for place in match
                for near in molecule.GetAtomWithIdx(place).GetNeighbors()
            }
            entity = Chem.MolFragmentToSmiles(
                molecule, sorted({*match, *around}), isomericSmiles=False
            )
            substructures.append([group, sorted(match), entity])
    return substructures


@cache
def _patterns() -> dict[str, Any]:
    from rdkit import Chem

    return {name: Chem.MolFromSmarts(smarts) for name, smarts in FUNCTIONAL_GROUPS.items()}


def _kind(bond: Any) -> int:
    name = str(bond.GetBondType())
    # others (dative, zero order) are rare: a single bond is the nearest
    return 1 + (BOND_KINDS.index(name) if name in BOND_KINDS else 0)


def _features(atom: Any) -> list[float]:
    hydrogens = min(int(atom.GetTotalNumHs()), _MOST_HYDROGENS)
    code = atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else ""
    return [
        *_one_of(atom.GetSymbol(), _ELEMENTS),
        *(float(hydrogens == count) for count in range(_MOST_HYDROGENS + 1)),
        *_one_of(str(atom.GetHybridization()), _HYBRIDS),
        float(atom.GetIsAromatic()),
        float(atom.IsInRing()),
        float(code == "R"),
        float(code == "S"),
        float(atom.GetFormalCharge()),
    ]


def _one_of(name: str, known: Sequence[str]) -> list[float]:
    return [*(float(name == name_) for name_ in known), float(name not in known)]


def molecule_svg(
    smiles: str,
    relevance: Sequence[float] | NDArray[np.floating[Any]],
    *,
    scale: float | None = None,
    palette: str = "diverging",
    size: tuple[int, int] = (420, 320),
) -> str:
    """The structural formula as an SVG file, each atom on a disc of the colour of its relevance.

    Args:
        smiles: of the molecule.
        relevance: (T,) of its heavy atoms, in the order of the SMILES.
        scale: |relevance| that gets the full colour; None: the largest of this molecule.
        palette: of `reports.heatmap`.
        size: width and height in pixels.

    Raises ConfigurationError where RDKit is missing, the atoms are not as many or the scale is not
    above 0; ItemError `bad-smiles`.
    """
    molecule = read_molecule(smiles)
    from rdkit.Chem.Draw import rdMolDraw2D

    values = np.asarray(relevance, dtype=np.float64)
    if values.shape != (molecule.GetNumAtoms(),) or not np.isfinite(values).all():
        raise ConfigurationError(
            f"relevance has shape {values.shape}; {smiles!r} has {molecule.GetNumAtoms()} atoms, "
            "each with a finite value"
        )
    if scale is not None and not scale > 0:
        raise ConfigurationError(f"scale is above 0, not {scale!r}")
    largest = scale or float(np.abs(values).max(initial=0.0)) or 1.0
    colours = {
        atom: tuple(part / 255 for part in colour(value / largest, palette))
        for atom, value in enumerate(values.tolist())
    }
    drawer = rdMolDraw2D.MolDraw2DSVG(*size)
    drawer.drawOptions().useBWAtomPalette()
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        molecule,
        highlightAtoms=list(colours),
        highlightAtomColors=colours,
        highlightBonds=[],
        highlightAtomRadii=dict.fromkeys(colours, 0.45),
    )
    drawer.FinishDrawing()
    return str(drawer.GetDrawingText())
