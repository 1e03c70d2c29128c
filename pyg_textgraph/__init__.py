"""Language models that read graphs whose nodes carry whole texts, as a PyTorch Geometric plugin."""

__version__ = "0.1.0"
