"""Molecules drawn by RDKit (extra `molecules`), their atoms coloured by relevance."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.data.molecules import read_molecule
from transexplain.errors import ConfigurationError
from transexplain.reports.heatmap import colour


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
