#!/bin/sh
# The 4-bit codec on one core over 100 MB of floats, in units of memcpy's rate in the same run.
# usage: bench/codec.sh BUILD
set -eu
redpoll=$1/src/cli/redpoll
json_key() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"; }

rate() { # title key goal words...
    title=$1 key=$2 goal=$3
    shift 3
    json=$("$redpoll" bench codec --count 25000000 --json "$@")
    awk -v title="$title" -v rate="$(echo "$json" | json_key "$key")" -v copy="$(echo "$json" | json_key memcpy_bytes_s)" \
        -v goal="$goal" 'BEGIN { printf "%-28s %6.2f GB/s, memcpy %6.2f GB/s, ratio %.2f (goal: at least %.1f)\n",
                                 title, rate / 1e9, copy / 1e9, rate / copy, goal }'
}

echo "codec q4, bucket 512, 25,000,000 floats, one core, medians"
rate "encode" encode_bytes_s 1.2 --codec q4
rate "encode, error feedback" encode_bytes_s 0.9 --codec q4 --error-feedback
rate "encode, stochastic" encode_bytes_s 0.6 --codec q4:rounding=stochastic
rate "decode and add" decode_add_bytes_s 1.1 --codec q4
