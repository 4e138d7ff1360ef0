"""The documentation site: hooks of mkdocs, and what must hold of the pages that it wrote.

`python -m tests.site FOLDER` reads every page of a site that was built: each link leads to a page and to a heading of
it, and no page or style asks another host for anything.
"""

import json
import re
import sys
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from posixpath import join, normpath
from typing import Any
from urllib.parse import unquote, urlsplit

from griffe import Alias, Extension, Module, Object
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PRE = re.compile(r"<pre([^>]*)>(.*?)</pre>", re.DOTALL)
# what Pygments writes before a prompt
PROMPT = '<span class="gp">'
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# what the plugin for pages that are opened from disk asks another host for
SHIM = "https://unpkg.com/iframe-worker/shim"
# the attributes by which a page loads something
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
IN_STYLES = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)")


def on_files(files: Any, config: Any) -> Any:
    """Take in the figures of the benchmarks, which are kept beside their records."""
    for figure in sorted((ROOT / "benchmarks" / "results").glob("*.png")):
        name = f"benchmarks/results/{figure.name}"
        files.append(File.generated(config, name, abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Of a link to a file of the repository that is no page, keep the words; figures of the benchmarks are taken in."""
    folder = str(Path(page.file.src_uri).parent)

    def inside(found: re.Match[str]) -> str:
        sign, text, link = found.groups()
        if urlsplit(link).scheme or link.startswith("#"):
            return found[0]
        target = normpath(join("docs", folder, link.partition("#")[0]))
        if target.startswith("docs/"):
            # a page links to its own language by itself
            return f"{sign}[{text}]({re.sub(r'[.]zh[.]md', '.md', link)})" if not is_switch(text) else found[0]
        if sign and target.startswith("benchmarks/results/"):
            return f"![{text}]({'../' * (len(Path(folder).parts))}{target})"
        return f"`{target}`" if text == target else f"{text} (`{target}`)"

    def is_switch(text: str) -> bool:
        return text in ("中文", "English")

    # the site has a switch of its own
    lines = [line for line in markdown.split("\n") if not re.fullmatch(r"\[(?:中文|English)\]\([^)]*\)", line)]
    blocks = re.split(r"(^```.*?^```$)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    return "".join(each if each.startswith("```") else LINK.sub(inside, each) for each in blocks)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Search from a file works by a script of the site's own, not by one of another host; prompts are not copied."""
    output = PRE.sub(add_copy, output)
    above = len(Path(page.file.dest_uri).parts) - 1
    output = output.replace(SHIM, f"{'../' * above}assets/worker.js")
    if not page.file.dest_uri.startswith("zh/"):
        return output
    # what is searched is the index below zh/
    base = "/".join([".."] * above)
    if (said := f'{{"annotate": null, "base": "{base}"') not in output:
        raise ValueError(f"{page.file.dest_uri} must say its base as {said}: see what mkdocs-material writes now")
    return output.replace(said, said.replace(f'"{base}"', f'"{"/".join([".."] * (above - 1)) or "."}"'))


def add_copy(found: re.Match[str]) -> str:
    """A block of code; where that has prompts, its button copies what is typed, which mkdocs-material reads here."""
    attributes, inside = found.groups()
    if PROMPT not in inside:
        return found[0]
    return f'<pre{attributes} data-copy="{escape(typed(unescape(re.sub("<[^>]+>", "", inside))))}">{inside}</pre>'


def typed(text: str) -> str:
    """What is typed in a session of Python or of a shell, without prompts and output.

    An empty line within a block would end it in Python's prompt, and without one after it the next line is refused.

    >>> typed(">>> class A:\\n...     x = 1\\n...\\n...     y = 2\\n>>> A.x\\n1\\n$ ls\\nout")
    'class A:\\n    x = 1\\n    y = 2\\n\\nA.x\\nls'
    """
    lines, is_inside = [], False
    for line in text.splitlines():
        prompt, _, rest = line.partition(" ")
        if prompt == "...":
            lines += [rest] if rest.strip() else []
            is_inside = True
        elif prompt in (">>>", "$"):
            lines += ["", rest] if is_inside else [rest]
            is_inside = False
    return "\n".join(lines)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The page of a server for what it does not have."""
    return output_content.replace(SHIM, "/assets/worker.js")


@event_priority(-200)
def on_post_build(config: Any) -> None:
    """Give each language an index of its own: a search finds no page twice, and none in a language that is not read.

    It comes after the plugin that builds the other languages, which is called last, and has one index for all.
    """
    folder = Path(config["site_dir"])
    whole = json.loads((folder / "search" / "search_index.json").read_text("utf-8"))
    chinese = {
        each["location"].removeprefix("zh/"): each for each in whole["docs"] if each["location"].startswith("zh/")
    }
    english = {each["location"]: each for each in whole["docs"] if not each["location"].startswith("zh/")}
    if not chinese:
        return
    translated = {location.partition("#")[0] for location in chinese}
    # a page that is not translated is shown in English
    chinese |= {place: each for place, each in english.items() if place.partition("#")[0] not in translated}
    for root, found in ((folder, english), (folder / "zh", chinese)):
        docs = [{**each, "location": place} for place, each in found.items()]
        index = json.dumps({**whole, "docs": docs}, ensure_ascii=False, separators=(",", ":"))
        (root / "search").mkdir(exist_ok=True)
        (root / "search" / "search_index.json").write_text(index, "utf-8")
        (root / "search" / "search_index.js").write_text(f"var __index = {index}", "utf-8")


class Examples(Extension):
    """Examples in docstrings, as blocks of Python; a public name is what is imported, not the file of that name."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """The package, once it is read: `from headwise.ops import attention` names a function of `ops/attention.py`."""
        for name, alias in [*pkg.members.items()]:
            is_own = alias.is_alias and alias.target_path.startswith(f"{pkg.path}.")
            if is_own and alias.final_target.is_module and name in alias.final_target.members:
                pkg[name] = Alias(name, f"{alias.final_target.path}.{name}")

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """One class, function or module."""
        if obj.docstring is not None:
            paragraphs = re.split(r"\n{2,}", obj.docstring.value)
            fenced = [f"```pycon\n{each}\n```" if each.lstrip().startswith(">>> ") else each for each in paragraphs]
            obj.docstring.value = "\n\n".join(fenced)


class Page(HTMLParser):
    """What a page links to, what it loads, and which places in it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element."""
        said = dict(attrs)
        self.places.update(value for name in ("id", "name") if (value := said.get(name)))
        if tag == "a" and (link := said.get("href")):
            self.links.append(link)
        if (link := said.get(LOADS.get(tag, ""))) and said.get("rel") not in ("canonical", "alternate", "next", "prev"):
            self.loaded.append(link)


def mistakes(folder: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and for each thing that another host is asked for."""
    pages = {file.relative_to(folder).as_posix(): Page(file.read_text("utf-8")) for file in folder.rglob("*.html")}
    found = []
    for name, page in sorted(pages.items()):
        for link in page.loaded:
            if urlsplit(link).netloc:
                found.append(f"{name} loads {link}, from another host")
            elif name != "404.html" and not (folder / _target(name, link)).exists() and not link.startswith("data:"):
                found.append(f"{name} loads {link}, which is not there")
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            target = _target(name, link)
            if not (folder / target).exists():
                found.append(f"{name} links to {link}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{name} links to {link}, where {target} has no such place")
    for file in sorted([*folder.rglob("*.css")]):
        asked = IN_STYLES.findall(file.read_text("utf-8"))
        found += [f"{file.relative_to(folder)} loads {each}, from another host" for each in asked]
    return found


def _target(name: str, link: str) -> str:
    path = unquote(urlsplit(link).path)
    target = normpath(join(str(Path(name).parent), path)) if path else name
    return f"{target}/index.html" if path.endswith("/") else target


def main() -> int:
    """Say what is wrong with a site."""
    found = mistakes(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
