# One table from the metrics.jsonl of several runs, the first being the bound for "share":
#     awk -f tools/compare_runs.awk runs/a/metrics.jsonl runs/b/metrics.jsonl ...
# Columns: images/s +- 1.96 standard deviations over the steps, share of the first run, MB sent a
# step by the rank that sends most, communication a step and how much of it was exposed, loss at
# equal steps, loss at equal seconds, accuracy.
function number(line, key,   text) {
    if (!match(line, "\"" key "\":[-+0-9.eE]+")) return ""
    text = substr(line, RSTART, RLENGTH)
    sub(/^[^:]*:/, "", text)
    return text + 0
}
FNR == 1 { runs++; name[runs] = FILENAME; sub(/\/metrics.jsonl$/, "", name[runs]); sub(/.*\//, "", name[runs]) }
!/}$/ { next } # a line that a killed run was writing
/"step":/ && /"loss":/ {
    n = ++steps[runs]
    loss[runs, n] = number($0, "loss")
    elapsed[runs] += number($0, "step_s")
    at[runs, n] = elapsed[runs]
    if (n <= WARMUP) next
    m = ++measured[runs]
    rate = number($0, "images_s")
    sum[runs] += rate; squares[runs] += rate * rate
    mb[runs] += number($0, "wire_bytes") / 1e6
    comm[runs] += number($0, "comm_s"); exposed[runs] += number($0, "exposed_s")
}
/"test_accuracy":/ { accuracy[runs] = number($0, "test_accuracy") }
# Single losses jump about: the mean of the last five up to step n.
function smooth(run, n,   i, first, total) {
    first = n > 5 ? n - 4 : 1
    for (i = first; i <= n; i++) total += loss[run, i]
    return n ? total / (n - first + 1) : 0
}
END {
    equal_steps = steps[1]
    equal_seconds = elapsed[1]
    for (r = 2; r <= runs; r++) {
        if (steps[r] < equal_steps) equal_steps = steps[r]
        if (elapsed[r] < equal_seconds) equal_seconds = elapsed[r]
    }
    printf "%-14s %16s %7s %9s %9s %9s %10s %10s %9s\n", "run", "images/s", "share", "MB/step", "comm s", "exposed s",
           "loss@" equal_steps, sprintf("loss@%.0fs", equal_seconds), "accuracy"
    for (r = 1; r <= runs; r++) {
        mean = measured[r] ? sum[r] / measured[r] : 0
        if (r == 1) bound = mean
        variance = measured[r] ? squares[r] / measured[r] - mean * mean : 0
        last = 0
        for (n = 1; n <= steps[r]; n++) if (at[r, n] <= equal_seconds * 1.0001) last = n
        printf "%-14s %9.1f +- %4.1f %6.0f%% %9.2f %9.3f %9.3f %10.4f %10.4f %8.2f%%\n", name[r], mean,
               1.96 * sqrt(variance > 0 ? variance : 0), bound ? 100 * mean / bound : 0, mb[r] / measured[r],
               comm[r] / measured[r], exposed[r] / measured[r], smooth(r, equal_steps), smooth(r, last), 100 * accuracy[r]
    }
}
