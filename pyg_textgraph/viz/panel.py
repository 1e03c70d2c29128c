"""Where a figure of one panel is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "o^sDvP<>X*"


def panel(ax: Axes | None) -> tuple[Figure, Axes]:
    """The given axes and their figure, or those of a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(layout="constrained")
    return cast("Figure", ax.figure), ax
