"""A C header as a page: each comment that begins with /** and the declaration under it."""

from __future__ import annotations

import re

COMMENT = re.compile(r"/\*\*(?!<)(.*?)\*/", re.DOTALL)
NAME = re.compile(r"\b(rp_\w+(?:\(\))?|RP_\w+|rp_\*|NULL)(?![\w`])")
TITLE = re.compile(r"\b(rp_\w+)\s*\(|\}\s*(rp_\w+)\s*;|#define\s+(RP_\w+)|\b(rp_\w+);")


def page_of_header(name: str, text: str) -> str:
    """Markdown. The first comment is the header's own."""
    parts = COMMENT.split(text)
    lines = [f"# {name}", "", "    #include <redpoll/redpoll.h>", "", prose(parts[1]), ""]
    lines += block(declaration_in(parts[2].split("#ifdef __cplusplus")[-1], first=True))
    for comment, after in zip(parts[3::2], parts[4::2]):
        code = declaration_in(after)
        title = name_in(code)
        if title:
            lines += [f"## {title}", ""]
        lines += [*block(code), prose(comment), ""]
    return "\n".join(lines)


def block(code: str) -> list[str]:
    return [*("    " + line for line in code.splitlines()), ""] if code else []


def declaration_in(after: str, first: bool = False) -> str:
    """What follows a comment, up to a blank line outside of braces."""
    taken: list[str] = []
    depth = 0
    for line in after.strip("\n").split("\n"):
        if not line.strip() and depth == 0:
            break
        if re.match(r"#(if|endif|else|include|undef)|}\s*$|extern \"C\"", line):
            continue
        depth += line.count("{") - line.count("}")
        taken.append(line)
    return "" if first else "\n".join(taken)


def name_in(code: str) -> str:
    found = TITLE.search(code)
    return next((one for one in found.groups() if one), "") if found else ""


def prose(comment: str) -> str:
    """Its paragraphs; names of the interface as code, and nothing that Markdown would read."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment.strip().split("\n")]
    out = []
    for line in lines:
        if line.startswith("   "):
            out.append(line)
            continue
        words = NAME.split(line)
        words[0::2] = [re.sub(r"([*_<>\[\]#|`])", r"\\\1", word) for word in words[0::2]]
        words[1::2] = [f"`{word}`" for word in words[1::2]]
        out.append("".join(words))
    return "\n".join(out)
