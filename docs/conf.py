"""The documentation site: ``make docs`` builds it with Sphinx into .cache/site; a broken link fails."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.repository.docs_site import add_generated

project = "minik8s"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "minik8s"
html_show_sphinx = False
html_copy_source = False
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3
highlight_language = "none"


def setup(app: object) -> None:
    """Fill the generated pages of the reference when they are read."""
    app.connect("source-read", add_generated)  # type: ignore[attr-defined]
