# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the pages; ci/docs runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import tomllib
from sphinx.errors import ConfigError

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_tools"))

from package import make_importable  # noqa: E402

make_importable()

PYPROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]

project = "smp-train"
author = "the authors of smp-train"
project_copyright = "the authors of smp-train, Apache-2.0"
version = release = PYPROJECT["tool"]["smp"]["version"]

extensions = ["breathe", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}

# Pages are Markdown; every heading down to the third level can be linked to.
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "tasklist"]
myst_heading_anchors = 3

# Docstrings have Google's form. Types are those of the signature.
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 110
add_module_names = False

# What Doxygen says of the C++ headers.
HEADERS = HERE.parent / "build" / "docs" / "doxygen" / "xml"
if not (HEADERS / "index.xml").is_file():
    raise ConfigError(f"{HEADERS} holds nothing of the C++ headers; run ci/docs, which makes it")
breathe_projects = {"smp": str(HEADERS)}
breathe_default_project = "smp"
breathe_show_include = False

# Names of Python, torch and others are not looked up: that would take the network. Ours are.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!smdistributed\.|smp\.).*"),
    (r"cpp:.*", r"smp|(at|c10|c10d|std|torch)(::.*)?"),
    # Names of our own that only types mention.
    (
        r"py:class",
        r"smdistributed\._runtime\..*|smdistributed\..*\.(_\w+|Model|ModuleClass|R|StepFunction)",
    ),
]

html_theme = "furo"
html_title = f"smp-train {version}"
html_static_path = ["_static"]
html_css_files = ["smp.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
