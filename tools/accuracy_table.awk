# Lines "model metric steps seed value-of-32-bits value-of-4-bits" to the table of docs/accuracy.md.
function deviation(k, codec,   n, v) {
    n = count[k]
    v = (squares[k, codec] - sum[k, codec] ^ 2 / n) / (n > 1 ? n - 1 : 1)
    return sqrt(v > 0 ? v : 0)
}
function cell(k, codec) {
    if (count[k] == 1) return sprintf("%.2f", sum[k, codec])
    return sprintf("%.2f ± %.2f", sum[k, codec] / count[k], deviation(k, codec))
}
{
    x[1] = $5 * ($2 == "test_accuracy" ? 100 : 1)
    x[2] = $6 * ($2 == "test_accuracy" ? 100 : 1)
    if (!($1 in count)) models[++m] = $1
    metric[$1] = $2
    steps[$1] = $3
    count[$1]++
    for (c = 1; c <= 2; c++) {
        sum[$1, c] += x[c]
        squares[$1, c] += x[c] ^ 2
    }
}
END {
    said["test_accuracy"] = "accuracy, %"
    said["test_perplexity"] = "perplexity"
    said["test_f1"] = "F1, %"
    print "| model | steps | of held-out data | 32 bits | 4 bits | difference | seeds |"
    print "|---|---|---|---|---|---|---|"
    for (i = 1; i <= m; i++) {
        k = models[i]
        printf "| %s | %d | %s | %s | %s | %+.2f | %d |\n", k, steps[k], said[metric[k]], cell(k, 1), cell(k, 2), (sum[k, 2] - sum[k, 1]) / count[k], count[k]
    }
    print ""
    print "Mean ± standard deviation over the seeds."
}
