#!/bin/sh
# The documentation as a site of pages with a search, in build/site: README.md, docs/, and the references of the
# Python package and of the C headers, made of their docstrings and comments. usage: tools/site.sh [FOLDER]
# A link that leads nowhere and a page that mkdocs.yml does not list are errors.
# Exit 77 where MkDocs cannot be had.
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-build/site}")
python=$(sh tools/site_venv.sh) || exit 77
rm -rf "$out" "$out-source"
"$python" tools/site/site_sources.py . "$out-source"
"$python" -m mkdocs build --strict --config-file "$out-source/mkdocs.yml" --site-dir "$out" \
    >"$out-source/mkdocs.log" 2>&1 || {
    grep -E 'WARNING|ERROR|Aborted' "$out-source/mkdocs.log" >&2 || cat "$out-source/mkdocs.log" >&2
    exit 1
}
echo "site: $(find "$out" -name index.html | wc -l) pages; open $out/index.html"
