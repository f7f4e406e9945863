"""What MkDocs makes the site of: usage: site_sources.py ROOT FOLDER

Pages lie as in the checkout, so that their links hold; what else they link to is copied beside
them, and a folder without a README becomes a list of its files. Reference pages are made here:
of each public name of the Python package, which mkdocstrings fills in, and of each C header.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

from c_reference import page_of_header

ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)]*)?\)")
MODULES = {  # of the Python reference; None: the names that the module exports
    "redpoll.torch": None,
    "redpoll.torch.integrations.accelerate": ["compress"],
    "redpoll.torch.integrations.lightning": ["CompressCallback"],
    "redpoll.torch.integrations.transformers": ["CompressCallback"],
    "redpoll.numpy": None,
    "redpoll.jax": None,
    "redpoll.errors": ["Error", "check"],
}


def main() -> None:
    root, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    pages = folder / "pages"
    sources = [root / name for name in ROOT_PAGES] + sorted(root.glob("docs/*.md"))
    for source in sources:
        copy_page(source, root, pages)
    shutil.copytree(root / "docs/images", pages / "docs/images", dirs_exist_ok=True)
    (folder / "python").symlink_to(root / "python")
    reference = {"python": python_pages(root), "c": c_pages(root)}
    settings = (Path(__file__).parent / "mkdocs.yml").read_text()
    for kind, texts in reference.items():
        names = []
        for name, text in texts.items():
            path = pages / "reference" / kind / f"{name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            names.append(f"      - {name}: reference/{kind}/{name}.md")
        label = {"python": "Python", "c": "C"}[kind]
        settings = settings.replace(f"      - {label}: reference/{kind}", "\n".join(names))
    (folder / "mkdocs.yml").write_text(settings)


def copy_page(source: Path, root: Path, pages: Path) -> None:
    """With what it links to in the checkout and is no page of its own."""
    text = source.read_text()

    def followed(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        if not target.exists() or root not in target.parents:
            return link[0]  # MkDocs says that it leads nowhere
        place = target.relative_to(root)
        if target.is_dir():
            bring_folder(target, pages / place)
            return f"]({link[1].rstrip('/')}/README.md)"
        if target.suffix != ".md" and not (pages / place).exists():
            (pages / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, pages / place)
        return link[0]

    copy = pages / source.relative_to(root)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(without_code(text, lambda prose: LINK.sub(followed, prose)))


def without_code(text: str, change) -> str:
    """`change` of each line that is no code block's."""
    return "\n".join(
        line if line.startswith(("    ", "\t")) else change(line) for line in text.split("\n")
    )


def bring_folder(source: Path, target: Path) -> None:
    """Its files; README.md lists them where it has none."""
    target.mkdir(parents=True, exist_ok=True)
    files = sorted(one for one in source.iterdir() if one.is_file())
    for one in files:
        if one.suffix != ".md":
            shutil.copy(one, target)
    own = source / "README.md"
    if own.exists():
        shutil.copy(own, target)
    else:
        rows = [f"- [{one.name}]({one.name})" for one in files if one.suffix != ".md"]
        (target / "README.md").write_text("\n".join([f"# {source.name}", "", *rows, ""]))


# ---- Python ----


def python_pages(root: Path) -> dict[str, str]:
    pages = {}
    for module, names in MODULES.items():
        path = root / "python" / module.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        tree = ast.parse(path.read_text())
        lines = [f"# {module}", "", ast.get_docstring(tree) or "", ""]
        for name in names if names is not None else public_names(tree):
            lines += [f"::: {module}.{name}", ""]
        pages[module] = "\n".join(lines)
    return pages


def public_names(tree: ast.Module) -> list[str]:
    """Its __all__, or what it imports and defines without an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            if isinstance(node.value, (ast.List, ast.Tuple)):
                return sorted(ast.literal_eval(node.value), key=str.lower)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            found += [each.asname or each.name for each in node.names]
    return sorted({name for name in found if not name.startswith("_")}, key=str.lower)


# ---- C ----


def c_pages(root: Path) -> dict[str, str]:
    headers = sorted((root / "include/redpoll").glob("*.h"))
    return {header.name: page_of_header(header.name, header.read_text()) for header in headers}


if __name__ == "__main__":
    main()
