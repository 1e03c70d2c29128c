"""Figures, drawn with matplotlib (``pip install pyg-textgraph[viz]``)."""
