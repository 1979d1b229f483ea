"""The pages of the site are the Markdown files of the checkout where they lie, so that one link is right on the forge and
on the site, and `mkdocs build --strict` checks each of them with its anchor."""

import re
import textwrap
import tomllib
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["*.md", "docs/*.md", "docs/*/*.md", "clients/*/README.md", "examples/*/README.md", "crates/*/*/README.md"]
# What pages link to besides.
OTHERS = ["LICENSE", "action.yml", "docker/*", "packaging/devcontainer/pgfresh/*", "deploy/sidecar.yaml", "crates/contract/openapi.json", "crates/sys/src/lib.rs", "crates/pgfresh/tests/it/repository/house.rs", "clients/transcripts/pgfresh", "docs/site/site.css", ".cargo/config.toml"]

# Quick starts that show whole files, and the example that has these files. Each block begins with a comment that names its file.
QUICK_STARTS = {
    "docs/quickstart/junit-liquibase.md": "examples/java-liquibase",
    "docs/quickstart/playwright.md": "examples/node-playwright",
    "docs/quickstart/prisma.md": "examples/node-prisma",
    "docs/quickstart/pytest.md": "examples/python-fastapi",
    "docs/quickstart/vitest.md": "examples/node-vitest-jest",
}


def on_config(config):
    with (ROOT / "Cargo.toml").open("rb") as file:
        config.site_name += " " + tomllib.load(file)["workspace"]["package"]["version"]
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def on_files(files, config):
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sorted(found for pattern in PAGES + OTHERS for found in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def anchor(heading, separator):
    """As forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_page_content(html, **_):
    """A bar within code within a table is escaped on forges, and Python's Markdown shows the backslash."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)


def on_page_markdown(markdown, page, **_):
    """Compares the files in a quick start with those of its example."""
    example = QUICK_STARTS.get(page.file.src_uri)
    if example is None:
        return
    blocks = re.findall(r"^( *)```\w+\n *(?:#|//|--|<!--) (\S+\.\w+)(?: -->)?\n(.*?)^\1```$", markdown, re.DOTALL | re.MULTILINE)
    if not blocks:
        raise PluginError(f"{page.file.src_uri} shows no file of {example}")
    for _, name, text in blocks:
        file = ROOT / example / name
        if not file.is_file() or textwrap.dedent(text) != file.read_text():
            raise PluginError(f"{page.file.src_uri} shows another {name} than {example}: make them equal")
