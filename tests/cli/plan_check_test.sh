#!/bin/sh
# `redpoll plan check`: forecasts beside measured trainings. usage: plan_check_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=check
tables=$(cd "$(dirname "$0")/../plan/measured" && pwd)
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"
# ---- the tables of tests/plan/measured: add a row. What the mean error may be, at most, and Kendall's tau, at least, by
# the device's facts as they are; the mean error of rows that facts were not fitted to, with --fit, where another
# libm takes another path. Words say what
# columns do not. ----

# is NUMBER TEST NUMBER
is() { awk "BEGIN { exit !($1 $2 $3) }"; }

gpt='--model gpt2:vocabulary=50257 --precision fp16 --recompute full --no-fused-attention --no-sequence-parallel'
while read -r file mean tau unseen words; do
    shows '^[0-9]+ rows, ' "$tables/$file" $words --brief --fit fitted.txt
    awk '/error: mean/ { print $3 }' out >means
    if is "$(sed -n 1p means)" '<=' "$mean"; then pass; else complain "$file errs by $(sed -n 1p means) %, above $mean"; fi
    if is "$(awk '/tau/ { print $NF; exit }' out)" '>=' "$tau"; then pass; else complain "$file: the order is not kept: $(cat out)"; fi
    if is "$(sed -n 3p means)" '<=' "$unseen"; then pass; else complain "$file: unseen rows err by $(sed -n 3p means) %, above $unseen"; fi
done <<END
vtrain_many_hosts.csv 11.1 0.89 5.8 --device a100-80g --link 800Gbit,5us $gpt
vtrain_one_host.csv 7.2 0.89 7 --device a100-80g $gpt
a100_80g.csv 4 0.98 5 --device a100-80g --link 1600Gbit,5us --model gpt2:dropout=0.1,attention-dropout=0.1
llm_foundry_a100_40gb.csv 4.8 0.98 5 --device a100-40g --link 1600Gbit,5us --model gpt2:vocabulary=50368
h100.csv 3.9 0.97 6 --device h100 --link 3200Gbit,5us --precision amp --model gpt2:vocabulary=50368
END

# Too few rows to fit to: what is in the table. The first four of megatron.csv are arXiv 2205.05198's.
head -n 7 "$tables/megatron.csv" >"$folder/korthikanti.csv"
while read -r file mean tau words; do
    if [ -f "$file" ]; then table=$file; else table=$tables/$file; fi
    shows '^[0-9]+ rows, ' "$table" $words --brief
    if is "$(awk '/error: mean/ { print $3 }' out)" '<=' "$mean"; then pass; else complain "$file errs by more than $mean %: $(cat out)"; fi
    if is "$(awk '/tau/ { print $NF }' out)" '>=' "$tau"; then pass; else complain "$file: the order is not kept: $(cat out)"; fi
done <<'END'
megatron.csv 3.8 1 --device a100-80g --link 1600Gbit,5us --model gpt2:vocabulary=51200,positions=2048,dropout=0.1,attention-dropout=0.1 --precision bf16-fp32 --no-fused-attention
korthikanti.csv 3.65 1 --device a100-80g --link 1600Gbit,5us --model gpt2:vocabulary=51200,positions=2048,dropout=0.1,attention-dropout=0.1 --precision bf16-fp32 --no-fused-attention
nanotron.csv 2.6 -1 --device a100-80g --ranks-per-host 4 --link 800Gbit,5us --model llama:7b --zero 1 --recompute none --seq-length 4096
zero_bubble.csv 3 1 --device a100-80g --link 800Gbit,5us --model gpt2:vocabulary=50304,dropout=0.1,attention-dropout=0.1 --precision bf16-fp32 --no-fused-attention --recompute none
END

# What was fitted is a device for --devices; every row has its line.
shows '^ +4 +512 +1 +1 +512 +8 ' "$tables/h100.csv" --device h100 --link 3200Gbit,5us --precision amp \
    --model gpt2:vocabulary=50368 --devices fitted.txt
also '^  columns that were not used: row$'
if [ "$(grep -cE '^ +[0-9]+ .* %( +outside)?$' out)" -eq 35 ]; then pass; else complain "not 35 rows: $(cat out)"; fi
if grep -qE '^h100 +gemm_share +0\.[0-9]+ +fitted +35 rows of .*h100.csv, lines 4 to 38, unseen rows err by [0-9.]+ percent$' fitted.txt; then
    pass
else
    complain "what was fitted does not say to what: $(cat fitted.txt)"
fi

# ---- JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
plan = json.load(sys.stdin)
errors = sorted(abs(row["predicted_s"] / row["measured_s"] - 1) for row in plan["rows"])
assert plan["op"] == "check" and plan["count"] == len(errors) == 35, plan["count"]
assert abs(plan["errors"]["mean"] - sum(errors) / 35) < 1e-9, plan["errors"]
assert abs(plan["errors"]["median"] - errors[17]) < 1e-9 and abs(plan["errors"]["worst"] - errors[-1]) < 1e-9
assert abs(1 - plan["errors"]["mean"] / plan["errors"]["constant_mean"] - plan["errors"]["skill"]) < 1e-9
covered = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in plan["rows"]) / 35
assert abs(plan["covered"] - covered) < 1e-9, plan["covered"]
assert plan["unseen"]["mean"] >= plan["fitted"]["mean"] and plan["facts"]["gemm_share"] < 1
END
    "$redpoll" plan check "$tables/h100.csv" --device h100 --link 3200Gbit,5us --precision amp \
        --model gpt2:vocabulary=50368 --fit fitted.txt --json >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 3 err)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- mistakes: tests/plan/foresight/measured_table_test.c has all of a table ----

refused 'which table of measured trainings' --device a100-80g
refused 'none.csv is missing' none.csv --device a100-80g
printf 'gpus,global_batch,iteration_s\n8,64,1.5\n8,64,\n' >holes.csv
refused 'holes.csv, line 3: iteration_s is empty' holes.csv --device a100-80g
printf 'gpus,global_batch,iteration_s\n8,64,1.5\n12,96,1.5\n' >odd.csv
refused 'how fast is the link of one' odd.csv --device a100-80g
refused 'odd.csv, line 3: 12 ranks are no whole hosts of 8' odd.csv --device a100-80g --link 1Gbit,1us
printf 'gpus,global_batch,iteration_s\n8,64,1.5\n' >few.csv
refused '1 rows are too few to fit to' few.csv --device a100-80g --fit f.txt
refused 'did you mean' few.csv --device a100-80 --fit f.txt

finish
