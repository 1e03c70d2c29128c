"""Settings of the documentation; ``make docs`` builds it."""

import pyg_textgraph

project = "pyg_textgraph"
author = "the authors of pyg_textgraph"
version = release = pyg_textgraph.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx.ext.viewcode", "myst_nb"]
html_theme = "furo"
html_title = f"pyg_textgraph {version}"
exclude_patterns = ["build", "figures/*.py"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Shapes", "notes_style")]

# tutorials are executed by `make tutorials` and by the tests, and shown as committed
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]
