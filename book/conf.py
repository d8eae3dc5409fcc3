"""Settings of the book. `make book` calls Sphinx with the repository as source folder, so that links between README,
notebooks and files work there as they do in the repository, and this folder as the one with the settings."""

import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

sys.modules.setdefault("rfc3987_syntax", None)  # takes seconds to load; see helpers/experiments/notebooks.py

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Where the repository is on the web, such as https://github.com/owner/name: not known here, so set by who publishes.
REPOSITORY = os.environ.get("BOOK_REPOSITORY", "").rstrip("/")

project = "Learning to learn graph topologies"
author = PROJECT["authors"][0]["name"]
version = release = PROJECT["version"]
language = "en"
smartquotes_action = "D"  # dashes; quotation marks are mostly those of code

root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "notebooks/*.ipynb", "book/*.md"]
exclude_patterns = [".*", "book/_build", "build", "data", "dist", "figures", "helpers", "tests"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "book.pages"]

# notebooks are shown as they are stored
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_heading_anchors = 3
myst_heading_slug_func = "book.pages.jupyter_anchor"

# autodoc
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the descriptions say more; ArrayLike would be spelled out in full
napoleon_use_rtype = False
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
add_module_names = False
autodoc_inherit_docstrings = False  # those of torch and scikit-learn are about other things

# Equations: one file of MathJax, out of a Python package, whose own extension would copy all 24 MB of it.
MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax" / "tex-svg-full.js"
mathjax_path = MATHJAX.name
mathjax3_config = {"options": {"enableMenu": False}}  # the menu would load further files

VIEWER = ROOT / "helpers" / "viewer" / "viewer.css"  # of the page "Try it"

html_theme = "sphinx_book_theme"
html_title = project
html_favicon = "static/favicon.svg"
html_context = {"default_mode": "auto"}
html_static_path = ["static", str(MATHJAX), str(VIEWER)]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_copy_source = True
html_show_sphinx = False
html_last_updated_fmt = None
html_theme_options = {
    "navbar_persistent": [],  # the search stands in the sidebar
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
}
if REPOSITORY:  # links to the repository and to Binder, which a reader may click; nothing is loaded from there
    html_theme_options |= {
        "repository_url": REPOSITORY,
        "repository_branch": os.environ.get("BOOK_BRANCH", "main"),
        "use_repository_button": True,
        "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
    }
