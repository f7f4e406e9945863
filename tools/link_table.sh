#!/bin/sh
# The table of docs/choosing.md: predicted seconds of an all-reduce of a model's gradients, by link and codec.
# usage: tools/link_table.sh [REDPOLL] [RANKS]
set -eu
redpoll=${1:-build/release/src/cli/redpoll} ranks=${2:-4}
codecs="fp32 bf16 q8 q4 q2"

row() { # name, parameters, link
    printf '| %s | %s |' "$1" "$3"
    for codec in $codecs; do
        "$redpoll" plan all-reduce --ranks "$ranks" --count "$2" --link "$3" --codec "$codec" --json |
            sed 's/.*"time_s":\([0-9.e+-]*\).*/\1/' |
            awk '{printf($1 < 0.0995 ? " %.0f ms |" : " %.2f s |", $1 < 0.0995 ? 1000 * $1 : $1)}'
    done
    echo
}

echo "| gradients | link | $(echo "$codecs" | sed 's/ / | /g') |"
echo "|---|---|$(for codec in $codecs; do printf -- '---|'; done)"
for link in 100Mbit,1ms 1Gbit,50us 10Gbit,20us 25Gbit,10us; do
    row "ResNet-50, 25.6 M" 25557032 "$link"
    row "GPT-2, 124 M" 124439808 "$link"
done
