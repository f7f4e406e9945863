#!/bin/sh
# The benches as a user of their JSON sees them: keys and types; of all-reduce over a sample of
# worlds, codecs, algorithms, transports, dtypes and counts equal replicas with the error that
# theory and docs/codecs.md give; of every collective the serial answer over a sample of worlds,
# dtypes, reductions and roots. usage: bench_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"

# ---- keys and types ----

text='"[^"]*"' number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?' switch='(true|false)'
# keys WORDS... -- KEY=TYPE...: one object a run of exactly these keys, in this order
keys() {
    words='' pattern=''
    while [ "$1" != -- ]; do words="$words $1" && shift; done
    shift
    for key in "$@"; do pattern="$pattern,\"${key%%=*}\":${key#*=}"; done
    if "$redpoll" $words --json >out 2>err && [ "$(wc -l <out)" -eq 1 ] && grep -qxE "\{${pattern#,}\}" out; then
        pass
    else
        complain "redpoll$words --json: $(cat out err)
    is not ${pattern#,}"
    fi
}
for codec in fp32 q4; do
    [ $codec = fp32 ] && bus=$number || bus=null
    keys bench all-reduce -n 2 --count 1000 --codec $codec --iters 3 -- op='"all-reduce"' ranks=2 count=1000 \
        dtype='"f32"' bytes=4000 codec="$text" algorithm="$text" transport="$text" iters=3 time_s="$number" \
        time_min_s="$number" time_max_s="$number" algbw_bytes_s="$number" busbw_bytes_s="$bus" \
        wire_bytes='[0-9]+' rel_l2_error="$number" replicas_equal=true reduce='"sum"' root=null correct=true \
        progress_thread=false registered=false device='"cpu"' in_place=true in_place_time_s="$number" in_place_algbw_bytes_s="$number" \
        in_place_busbw_bytes_s="$bus"
    keys bench codec --codec $codec --count 10000 --iters 1 -- codec="$text" count=10000 isa="$text" \
        encode_bytes_s="$number" decode_add_bytes_s="$number" memcpy_bytes_s="$number" encoded_bytes='[0-9]+' \
        rel_l2_error="$number" dtype='"f32"' error_feedback="$switch"
done
# What a collective has not is null.
collectives=$("$redpoll" --help | awk '$1 == "bench" && $2 != "codec" && $2 != "link" && $2 != "machine" { print $2 }')
[ "$(echo "$collectives" | wc -l)" -ge 10 ] || complain "only these are benched: $collectives"
for op in $collectives; do
    "$redpoll" bench "$op" --help >out
    grep -q "^usage: redpoll bench $op " out || complain "bench $op --help: $(head -n 3 out)"
    grep -q "^  redpoll bench $op -n" out || complain "bench $op --help has no example"
    dtype='"f32"' bytes='[0-9]+' codec=null algorithm=$text algbw=$number busbw=$number error=$number
    replicas=null reduce=null root=null correct=true topology=''
    case $op in neighbor-all-reduce | window-put) topology=exponential ;; esac
    case $op in
    barrier) dtype=null bytes=0 algbw=null busbw=null error=null correct=null ;;
    send-recv) algorithm=null ;;
    neighbor-all-reduce) codec=$text busbw=null ;;
    window-put) codec=$text busbw=null algorithm=null ;;
    all-reduce | reduce-scatter) codec=$text reduce='"sum"' ;;
    all-gather) codec=$text ;;
    reduce) reduce='"sum"' root=0 ;;
    broadcast | gather | scatter) root=0 ;;
    esac
    case $op in all-reduce | all-gather | broadcast) replicas=true ;; esac
    # in place is the only way, the other way, or none
    in_place=false place_time=null place_busbw=null registered=false device='"cpu"'
    case $op in
    barrier) in_place=null registered=null device=null ;;
    all-reduce | broadcast) in_place=true place_time=$number place_busbw=$number ;;
    all-to-all | send-recv | neighbor-all-reduce | window-put) ;;
    *) place_time=$number place_busbw=$number ;;
    esac
    count=1000 words='--count 1000'
    [ $op != barrier ] || count=0 words=
    keys bench "$op" -n 3 $words -- op="\"$op\"" ranks=3 count=$count dtype="$dtype" bytes="$bytes" \
        codec="$codec" algorithm="$algorithm" transport="$text" iters=5 time_s="$number" time_min_s="$number" \
        time_max_s="$number" algbw_bytes_s="$algbw" busbw_bytes_s="$busbw" wire_bytes='[0-9]+' \
        rel_l2_error="$error" replicas_equal=$replicas reduce="$reduce" root=$root correct=$correct \
        progress_thread=false registered=$registered device=$device in_place=$in_place in_place_time_s="$place_time" \
        in_place_algbw_bytes_s="$place_time" in_place_busbw_bytes_s="$place_busbw" ${topology:+"topology=\"$topology\""}
done
keys plan all-reduce --ranks 8 --size 4000 -- op='"all-reduce"' ranks=8 hosts=8 bytes=4000 codec='"fp32"' \
    encoded_bytes=4000 algorithm="$text" link_bytes_s="$number" link_latency_s="$number" local_bytes_s="$number" \
    local_latency_s="$number" time_s="$number" wire_bytes="$number" host_bytes="$number" wire_s="$number" encode_s="$number" decode_s="$number" frames='[0-9]+'
list='\[("[^"]*",?)+\]'
keys info -- version="$text" build="$text" compiler="$text" onednn="$text" openssl="$text" tls="$text" hwloc="$text" sanitizers="$text" isa="$text" \
    cpu_features="$text" cores='[0-9]+' kernel_forms='\{("[^"]*":"[^"]*",?)+\}' cuda='(true|false)' cuda_summary="$text" codecs="$list" algorithms="$list" transports="$list" models="$list" \
    data_sets="$list" optimizers="$list" lr_schedules="$list" strategies="$list" backends="$list" topologies="$list" pipelines="$list"

# ---- sizes as nccl-tests take them ----

# walk BYTES... -- WORDS...: these sizes, one after the other
walk() {
    wanted=''
    while [ "$1" != -- ]; do wanted="$wanted $1" && shift; done
    shift
    got=$("$redpoll" bench broadcast -n 2 --dtype i8 -w 0 --iters 1 --json "$@" 2>err | sed 's/.*"bytes":\([0-9]*\).*/ \1/' | tr -d '\n')
    [ "$got" = "$wanted" ] && pass || complain "bench broadcast $*: $got: $(cat err)
    is not $wanted"
}
walk 1024 2048 4096 8192 -- -b 1K -e 8K -f 2
walk 1024 4096 -- --min-bytes 1K --max-bytes 8K --step-factor 4
walk 1000 1500 2000 -- -b 1000 -e 2000 -i 500
walk 0 100 200 -- -b 0 -e 200 -i 100
walk 1024 2048 -- -e 2K
walk 64 -- -b 64
walk 0 -- -b 0
refused() {
    pattern=$1
    shift
    "$redpoll" bench all-reduce -n 2 "$@" >out 2>err
    [ $? -eq 2 ] && grep -qE -e "$pattern" err && pass || complain "$*: no '$pattern' but $(head -n 2 err)"
}
refused 'one of the two' -b 1K -e 2K -f 2 -i 1K
refused 'one of the two' -b 1K --sizes 1K
refused 'from 2048 to 1024 bytes are none' -b 2K -e 1K
refused '0 bytes stay 0' -b 0 -e 1K
refused 'say -b and -e' -f 2
refused 'more than 256 sizes' -b 1 -e 1M -i 1
refused 'out of range|too small' -b 1K -e 4K -f 1
# Names and switches of nccl-tests.
"$redpoll" bench all-reduce -n 2 -b 1K -d half -o prod -c 0 -w 0 --json >out 2>err
grep -q '"dtype":"f16".*"rel_l2_error":null,"replicas_equal":null,"reduce":"product",.*"correct":null' out ||
    complain "the words of nccl-tests: $(cat out err)"
"$redpoll" bench reduce -n 2 -b 1K -r 1 --no-in-place --json >out 2>err
grep -q '"root":1,.*"in_place":false,"in_place_time_s":null,' out || complain "--no-in-place: $(cat out err)"
"$redpoll" bench gather -n 2 -b 1K >out 2>err
grep -q 'out of place.*in place' out || complain "the table has not both places: $(cat out err)"
"$redpoll" bench all-reduce --help | grep -q 'nccl-tests' || complain "bench all-reduce --help does not mention nccl-tests"

# value KEY: of the object in out
value() { sed "s/.*\"$1\":\([^,}]*\).*/\1/" out; }

# ---- what a call sends ----

# 1 M floats on 4 ranks: two halves of 3/4 each of what is encoded, and 2 % for frames
count=1048576
for sent in fp32:$((count * 4)) bf16:$((count * 2)) q4:$((count / 2 + count * 8 / 512)) q1:$((count / 8 + count * 8 / 512)); do
    "$redpoll" bench all-reduce -n 4 --count $count --codec "${sent%%:*}" --iters 1 --warmup 0 --json >out 2>err
    if awk "BEGIN { share = $(value wire_bytes) / (1.5 * ${sent#*:}); exit !(share >= 1 && share <= 1.02) }"; then
        pass
    else
        complain "${sent%%:*}: $(value wire_bytes) bytes are sent, not 1.5 x ${sent#*:}"
    fi
done

# Blocks of 256 Ki floats that the busiest of 4 ranks sends; of a broadcast that depends on the algorithm.
count=262144
for sent in reduce-scatter:3 all-gather:3 reduce:1 gather:1 scatter:3 all-to-all:3 send-recv:1; do
    "$redpoll" bench "${sent%%:*}" -n 4 --count $count --iters 1 --warmup 0 --json >out 2>err
    if awk "BEGIN { share = $(value wire_bytes) / (4 * $count * ${sent#*:}); exit !(share >= 1 && share <= 1.02) }"; then
        pass
    else
        complain "${sent%%:*}: $(value wire_bytes) bytes are sent, not ${sent#*:} blocks of $((4 * count))"
    fi
done

# ---- sweeps, the table, the progress thread ----

"$redpoll" bench all-gather -n 3 --sizes 1,4KiB,1MiB --dtype i16 --iters 1 --json --progress-thread >out 2>err
sizes=$(sed 's/.*"bytes":\([0-9]*\).*/\1/' out | tr '\n' ' ')
[ "$sizes" = '6 4092 1048572 ' ] || complain "sizes of all-gather are $sizes: $(cat out err)"
[ "$(grep -c '"progress_thread":true,' out)" -eq 3 ] || complain "no progress thread: $(cat out err)"
"$redpoll" bench reduce -n 3 --sizes 400,8K --dtype u8 --reduce bxor --root 2 --iters 1 >out 2>err
grep -qE '^reduce of u8 \(bxor\) on 3 ranks over [a-z]+, root 2, median of 1$' out || complain "the title is $(cat out err)"
[ "$(awk '$1 == 400 && $2 == 400 || $1 == 8192 && $2 == 8192' out | wc -l)" -eq 2 ] || complain "the table is $(cat out err)"

# ---- mistakes are said once, before ranks are started ----

refuses() { # PATTERN WORDS...
    pattern=$1
    shift
    "$redpoll" bench "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ] && [ "$(grep -c '^redpoll: .*'"$pattern" err)" -eq 1 ] && ! grep -q '^\[' err; then
        pass
    else
        complain "bench $*: exit code $code, not 2 with '$pattern': $(cat err)"
    fi
}
refuses "no reduction 'mux'; did you mean 'max'" all-reduce -n 2 --reduce mux
refuses 'band of f32' reduce -n 2 --reduce band
refuses 'max' all-reduce -n 2 --reduce max --codec q4
refuses 'does not take i32' all-gather -n 2 --codec q4 --dtype i32
refuses "dtype 'f31'" scatter -n 2 --dtype f31
refuses 'root 5 is not in a world of 2' gather -n 2 --root 5
refuses "'x' is not a size" all-to-all -n 2 --sizes 1K,x
refuses "no broadcast algorithm 'teer'.*did you mean 'tree'" broadcast -n 2 --algorithm teer
refuses "broadcast takes no --codec" broadcast -n 2 --codec q4
refuses 'between two ranks or more' send-recv

# ---- equal replicas, expected errors ----

# Errors at 100003 Gaussian elements over worlds of 2, 3, 5 and 7. Of exact and 16-bit sums an upper bound.
bound() { # CODEC DTYPE ALGORITHM WORLD -> LOW HIGH
    awk -v codec="$1" -v dtype="$2" -v algorithm="$3" -v world="$4" 'BEGIN {
        split("q1 ring 3.68 4.66 6.15 7.33 q1 sra 3.68 4.42 5.76 6.77 q4 ring .145 .168 .205 .238 " \
              "q4 sra .145 .153 .158 .160 q8 ring .0120 .0139 .0169 .0195 q8 sra .0120 .0127 .0132 .0133", table, " ")
        column["2"] = 2; column["3"] = 3; column["5"] = 4; column["7"] = 5
        if (world == 1) { print 0, 0; exit }
        for (i = 1; i in table; i += 6)
            if (substr(codec, 1, 2) == table[i] && algorithm == table[i + 1]) {
                error = table[i + column[world]]
                print error * .95, error * 1.05
                exit
            }
        high = 2e-7
        if (codec == "fp16" || dtype == "f16") high = 1e-3
        if (codec == "bf16" || dtype == "bf16") high = 5e-3
        print 0, high
    }'
}
compare() { # WORLD TRANSPORT ALGORITHM CODEC DTYPE COUNT
    case="-n $1 --transport $2 --algorithm $3 --codec $4 --dtype $5 --count $6"
    if ! timeout 60 "$redpoll" bench all-reduce $case --iters 1 --warmup 0 --json >out 2>err; then
        complain "bench all-reduce $case: $(tail -n 2 err)"
        return
    fi
    [ "$(value replicas_equal)" = true ] || complain "$case: replicas differ"
    # A few elements may add up to nearly nothing: their relative error has no bound.
    [ "$6" -lt 100003 ] || bounds=$(bound "$4" "$5" "$3" "$1")
    [ "$6" -ge 100003 ] || bounds="0 1e9"
    if echo "$bounds $(value rel_l2_error)" | awk '{ exit !($3 >= $1 && $3 <= $2) }'; then
        pass
    else
        complain "$case: error $(value rel_l2_error) is not within $bounds"
    fi
}

# Every 29th of 1800 combinations: the stride shares no factor with the lengths of the lists.
index=0
for world in 1 2 3 5 7; do
    for transport in shm tcp; do
        for algorithm in ring sra; do
            for codec in fp32 bf16 fp16 q1 q4 q8:rounding=stochastic; do
                for dtype in f32 f16 bf16; do
                    for count in 0 1 7 1000 100003; do
                        index=$((index + 1))
                        [ $((index % ${BENCH_TEST_STRIDE:-29})) -eq 0 ] || continue
                        compare $world $transport $algorithm $codec $dtype $count
                    done
                done
            done
        done
    done
done

# ---- every collective, dtype, reduction, root and transport gives the serial answer ----

# check WORDS...: exit code 0 is the harness's word for it
check() {
    if timeout 60 "$redpoll" bench "$@" --iters 1 --warmup 0 --json >out 2>err && ! grep -q '"correct":false' out; then
        pass
    else
        complain "bench $*: $(cat out err | tail -n 2)"
    fi
}

check all-reduce -n 2 --registered --sizes 0,1000000
grep -q '"registered":true,' out || complain "--registered is not said: $(cat out err)"
check all-gather -n 3 --registered --sizes 900000 --no-in-place

# Blocks as lists of segments with owners, some of which are empty.
for of in "reduce-scatter -n 3 --segments 7 --sizes 24,300000" "reduce-scatter -n 4 --segments 3 --codec q4 --reduce avg --count 5000" \
    "all-gather -n 3 --segments 7 --sizes 24,300000" "all-gather -n 2 --segments 5 --codec q8 --transport tcp --count 5000"; do
    # shellcheck disable=SC2086 # words
    check $of
    grep -q '"segments":[357][,}]' out || complain "$of: --segments is not said: $(cat out err)"
done
"$redpoll" bench all-reduce -n 2 --segments 3 >out 2>err
grep -q 'all-reduce takes no --segments' err || complain "bench all-reduce --segments: $(cat out err)"

# In memory of a GPU, over a stand-in for one (tests/cuda/stand_in.h), which the build has.
stand_in=$(dirname "$redpoll")/../../tests/cuda/libstand_in_cuda.so
if [ -f "$stand_in" ]; then
    export REDPOLL_CUDA_LIBRARY="$stand_in" REDPOLL_CUDA=on
    check all-reduce -n 3 --device cuda --codec q4 --sizes 0,300000
    check reduce-scatter -n 3 --device cuda --codec q4 --segments 4 --sizes 24,300000
    grep -q '"device":"cuda",' out || complain "--device is not said: $(cat out err)"
    for op in $collectives; do
        case $op in barrier | window-put) ;; *) check "$op" -n 3 --device cuda --sizes 0,90000 ;; esac
    done
    export REDPOLL_CUDA=off
    if "$redpoll" bench all-reduce -n 2 --device cuda >out 2>&1; then complain "no GPU, and a result: $(cat out)"; fi
    grep -q 'turned off by REDPOLL_CUDA=off' out || complain "why there is no GPU is not said: $(cat out)"
    unset REDPOLL_CUDA_LIBRARY REDPOLL_CUDA
fi

# Every so many of the combinations; the counts meet in one process.
index=0
for world in 1 2 3 5; do
    for op in $collectives; do
        case $op in barrier) continue ;; send-recv) [ $world -gt 1 ] || continue ;; esac
        reductions=- roots=-
        case $op in all-reduce | reduce-scatter | reduce) reductions='sum avg product min max band bor bxor premul-sum' ;; esac
        case $op in broadcast | reduce | gather | scatter) roots="0 $((world - 1))" ;; esac
        for dtype in f32 f16 bf16 f64 i8 u8 i16 i32 i64 u16 u32 u64 bool c64 c128; do
            for reduction in $reductions; do
                case $op:$dtype in neighbor-all-reduce:[iub][1-9o]*) continue ;; window-put:f32 | window-put:f64) ;; window-put:*) continue ;; esac
                case $reduction:$dtype in
                b[aox]*:[fbc][f136]*) continue ;;
                min:c* | max:c* | avg:[iub][1-9o]* | premul-sum:[iub][1-9o]*) continue ;;
                esac
                for root in $roots; do
                    index=$((index + 1))
                    [ $((index % ${BENCH_TEST_STRIDE:-29})) -eq 0 ] || continue
                    words="-n $world --dtype $dtype --sizes 1,17,4099,300K"
                    [ $reduction = - ] || words="$words --reduce $reduction"
                    [ "$root" = - ] || words="$words --root $root"
                    [ $((index % 2)) -eq 0 ] || words="$words --transport tcp"
                    [ $((index % 3)) -eq 0 ] || words="$words --progress-thread"
                    check $op $words
                done
            done
        done
    done
done

# ---- a reader that has gone ends it at the next row, also where the caller ignores SIGPIPE ----

for ranks in "" "-n 2"; do
    for ignores in "trap '' PIPE" :; do
        rm -f closed code
        (
            eval "$ignores"
            until [ -e closed ]; do sleep 0.05; done
            "$redpoll" bench all-reduce $ranks --sizes 4,8,12,16 --iters 1 --json
            echo $? >code
        ) 2>err | {
            exec <&-
            : >closed
        }
        if [ "$(cat code)" -eq 141 ] && ! grep -v "found by redpoll run" err; then
            pass
        else
            complain "bench $ranks without a reader, $ignores: code $(cat code): $(cat err)"
        fi
    done
done

# ---- links ----

keys bench link -n 2 --round-trips 5 -- ranks=2 transport="$text" between_pairs=0 between_latency_s=null \
    between_bytes_s=null inside_pairs=1 inside_latency_s="$number" inside_bytes_s="$number" links="$text" ways="\[\]"
keys bench link -n 3 --hosts 2 --link 1Gbit,50us --round-trips 5 -- ranks=3 transport="$text" between_pairs=2 \
    between_latency_s="$number" between_bytes_s="$number" inside_pairs=1 inside_latency_s="$number" \
    inside_bytes_s="$number" links="$text" ways="\[\]"
"$redpoll" bench link -n 1 >out 2>err && complain "one rank has links"
grep -q 'say -n 2' err || complain "bench link -n 1: $(cat err)"
# What it prints is what runs and plans take, and rank 0's counts for all: by a latency of 5 ms one round is the best.
links=$("$redpoll" bench link -n 2 --round-trips 5 | sed -n 's/^ *export REDPOLL_LINKS=//p')
"$redpoll" plan all-reduce --links "$links" --brief >out 2>err || complain "plan --links $links: $(cat err)"
grep -q '^chosen by these links, ' out || complain "plan does not say by which links: $(cat out)"
chosen() { sed 's/.*"algorithm":"\([^"]*\)".*/\1/' out; }
slow=1Gbit,5ms/5GB,2us
"$redpoll" plan all-reduce --ranks 4 --hosts 4 --count 16K --links $slow --json >out
[ "$(chosen)" = oneshot ] || complain "by $slow plan chooses $(chosen)"
"$redpoll" run -n 4 sh -c '[ "$RANK" != 0 ] || export REDPOLL_LINKS='$slow'
    exec "$0" bench all-reduce --hosts 4 --count 16K --iters 1 --json' "$redpoll" 2>err | grep -o '{.*}' >out
[ "$(chosen)" = oneshot ] || complain "by $slow on rank 0 a run chooses $(chosen): $(cat err)"
REDPOLL_LINKS=fast "$redpoll" bench barrier -n 2 --iters 1 >out 2>err && complain "REDPOLL_LINKS=fast is taken"
grep -q "links 'fast'" err || complain "REDPOLL_LINKS=fast: $(cat err)"

finish
