"""What the docs site needs beside docs/: the documents of the root as pages, and links that lead out of docs/.

The documents are written for readers of the checkout. On the site, a link to a file that isn't a page leads into the
repository; a file that isn't there is a warning, and `make docs` ends on any.
"""

from __future__ import annotations

import logging
import posixpath
import re
import textwrap
from pathlib import Path
from typing import Any

from properdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# By page, the document that it shows
OF_THE_ROOT = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "code-of-conduct.md": "CODE_OF_CONDUCT.md",
    "changelog.md": "CHANGELOG.md",
}
_PAGES = {document: page for page, document in OF_THE_ROOT.items()}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_PICTURE = re.compile(r'\b(src|srcset)="([^":]+)"')
_FENCE_IN_LIST = re.compile(r"^( {2,3})```\w*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
log = logging.getLogger("properdocs.hooks.docs_site")


def on_config(config: Any) -> Any:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Any, *, config: Any) -> Any:
    for page, document in OF_THE_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / document).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    page_path = page.file.src_uri
    document = OF_THE_ROOT.get(page_path, f"docs/{page_path}")
    return for_the_site(markdown, document, f"{config.repo_url.rstrip('/')}/blob/main")


def for_the_site(markdown: str, document: str, repository: str) -> str:
    """The text of `document` (by its path from the root) as the generator's Markdown understands it."""
    led = _LINK.sub(lambda found: _led(found[1], document, repository) + (found[2] or ""), markdown)
    led = _PICTURE.sub(lambda found: f'{found[1]}="{_pictured(found[2], document)}"', led)
    # In this dialect whatever belongs to an item of a list is four in; a block of code there is eight in.
    led = _FENCE_IN_LIST.sub(lambda found: textwrap.indent(textwrap.dedent(found[2]), " " * 8).rstrip("\n"), led)
    return re.sub(r"^ {3}(?=\S)", "    ", led, flags=re.MULTILINE)


def _led(target: str, document: str, repository: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document), target))
    if path.startswith("..") or not (ROOT / path).exists():
        log.warning("%s links to %s, which is not there", document, target)
    if path in _PAGES:
        return _PAGES[path]
    if posixpath.dirname(path) == "docs" and path.endswith((".md", ".svg")):  # a page, or a page's figure
        return posixpath.basename(path)
    return f"{repository}/{path}"


def _pictured(target: str, document: str) -> str:
    """Where a page of the site finds a picture that the document shows by a tag."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document), target))
    if not (ROOT / path).is_file():
        log.warning("%s shows %s, which is not there", document, target)
    return posixpath.relpath(path, "docs")


def slug(heading: str, separator: str) -> str:
    """A heading's anchor as the repository's host gives it, so that one link fits both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)
