"""Settings of Sphinx for the site that `build.py` stages."""

import os

os.environ["EINKORN_PROGRESS"] = "0"  # in the notebook

project = "Einkorn"
author = "the Einkorn authors"
copyright = author
html_title = "Einkorn"
extensions = ["myst_nb", "sphinx_copybutton"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_allow_errors = False  # cells that are meant to fail say so by the tag `raises-exception`
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"
nitpicky = False
