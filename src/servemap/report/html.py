"""A report as one HTML file that makes no network request."""

import json
import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from servemap.report.document import Document


def to_html(document: Document) -> str:
    """Return the report with plotly.js, styles and data inline; all text is escaped."""
    environment = Environment(
        loader=PackageLoader("servemap.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = script_json
    environment.filters["breakable"] = breakable
    plots = [plot for section in document.sections for plot in section.plots]
    return environment.get_template("report.html.j2").render(
        document=document,
        plotly=Markup(get_plotlyjs()) if plots else None,
    )


def breakable(text: str) -> Markup:
    """Return escaped text that a narrow column breaks after `_` and `/`, not inside a word."""
    return Markup(re.sub("(?<=[_/])(?=[^_/])", "<wbr>", str(escape(text))))


def script_json(value: Any) -> Markup:
    """Return JSON that may stand inside a script element, whatever its texts hold."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
