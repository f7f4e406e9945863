#!/bin/sh
# The site of the documents is built, with its references in it, and its check is one: a link and an anchor that
# lead nowhere are named. usage: site_test.sh ROOT FOLDER
set -u
root=$1 folder=$2
REDPOLL_SETUP=never
export REDPOLL_SETUP

python=$(sh "$root/tools/site_venv.sh") || exit 77
sh "$root/tools/site.sh" "$folder/site" || exit 1

holds() { # page, words
    grep -q "$2" "$folder/site/$1/index.html" || {
        echo "$1 has no '$2'"
        exit 1
    }
}
holds . 'Redpoll'
holds docs/pytorch 'init_process_group'
holds docs/performance 'id="by-processor"'
holds reference/python/redpoll.torch 'redpoll.torch.compress'
holds reference/python/redpoll.torch 'How gradients travel\|gradients' # of its docstring
holds reference/python/redpoll.torch.integrations.lightning 'CompressCallback'
holds reference/c/comm.h 'rp_comm_join'
holds reference/c/codec.h 'rp_codec_parse'

page=$folder/site-source/pages/docs/pytorch.md
# shellcheck disable=SC2016
printf '\n[a page](nowhere.md) and [a place](launching.md#nowhere)\n' >>"$page"
"$python" -m mkdocs build --strict --config-file "$folder/site-source/mkdocs.yml" --site-dir "$folder/broken" \
    >"$folder/site-broken.log" 2>&1 && {
    echo "a link that leads nowhere is not noticed"
    exit 1
}
for one in 'nowhere.md' 'launching.md#nowhere'; do
    grep -qF "$one" "$folder/site-broken.log" || {
        echo "'$one' is not named:"
        cat "$folder/site-broken.log"
        exit 1
    }
done
