# Redpoll beside plain sockets, interleaved. Sourced by scripts that define
#     plain_seconds PATTERN BYTES      prints seconds of one exchange
#     redpoll_json CODEC ALGORITHM     prints the JSON object of one all-reduce
# and set: repeats, count, folder.
# shellcheck shell=sh disable=SC2154 # the sourcing script sets them

json_key() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"; }
median() { sort -n | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

# The plain program moves as many bytes as the codec's encoding of the vector has.
compare() { # codec algorithm encoded-bytes goal
    : >"$folder/ours" && : >"$folder/theirs"
    r=0
    while [ $r -lt "$repeats" ]; do
        plain_seconds "$2" "$3" >>"$folder/theirs"
        redpoll_json "$1" "$2" | json_key time_s >>"$folder/ours"
        r=$((r + 1))
    done
    ours=$(median <"$folder/ours") theirs=$(median <"$folder/theirs")
    awk -v codec="$1" -v algorithm="$2" -v ours="$ours" -v theirs="$theirs" -v goal="$4" 'BEGIN {
        printf "%-6s %-5s redpoll %.4f s, plain sockets %.4f s, ratio %.3f (goal: at most %.2f)\n",
               codec, algorithm, ours, theirs, ours / theirs, goal }'
}

compare_all() {
    compare fp32 ring $((count * 4)) 1.05
    compare fp32 sra $((count * 4)) 1.05
    # 4 bits an element and two floats a bucket of 512
    compare q4 sra $((count / 2 + (count + 511) / 512 * 8)) 1.10
}
