# Lines "name link split accuracy steps seconds bytes-a-step exposed-seconds-a-step consensus-distance"
# of single runs to the table of docs/decentralised.md: a row for each strategy, link and split.
# -v untimed=1 leaves out what a machine with other work says nothing about.
function mean(values, n,   i, sum) {
    for (i = 1; i <= n; i++) sum += values[i]
    return sum / n
}
function accuracies(k, n,   i, v, low, high) {
    for (i = 1; i <= n; i++) {
        v = list[i] = accuracy[k, i] * 100
        if (i == 1 || v < low) low = v
        if (i == 1 || v > high) high = v
    }
    return n == 1 ? sprintf("%.1f", list[1]) : sprintf("%.1f (%.1f-%.1f)", mean(list, n), low, high)
}
{
    k = $1 " " $2 " " $3
    if (!(k in count)) keys[++rows] = k
    count[k]++
    accuracy[k, count[k]] = $4
    all_steps[k] += $5
    seconds[k] += $6
    bytes[k] += $7 * $5
    exposed[k] += $8 * $5
    if ($9 != "-") distance[k] += $9
    has_distance[k] = $9 != "-"
}
END {
    if (untimed) {
        print "| strategy | link | split | test accuracy, % | MB sent a step | consensus distance | seeds |"
        print "|---|---|---|---|---|---|---|"
    } else {
        print "| strategy | link | split | test accuracy, % | steps/s | of all-reduce's | MB sent a step | exposed ms a step | of the time | consensus distance | seeds |"
        print "|---|---|---|---|---|---|---|---|---|---|---|"
    }
    for (r = 1; r <= rows; r++) {
        k = keys[r]
        split(k, part, " ")
        apart = has_distance[k] ? sprintf("%.2g", distance[k] / count[k]) : ""
        if (untimed) {
            printf "| %s | %s | %s | %s | %.3f | %s | %d |\n", part[1], part[2], part[3], accuracies(k, count[k]),
                   bytes[k] / all_steps[k] / 1e6, apart, count[k]
            continue
        }
        rate = all_steps[k] / seconds[k]
        bound = "all-reduce " part[2] " " part[3]
        relative = bound in count ? sprintf("%.2f", rate / (all_steps[bound] / seconds[bound])) : ""
        printf "| %s | %s | %s | %s | %.1f | %s | %.3f | %.1f | %.0f %% | %s | %d |\n", part[1], part[2], part[3],
               accuracies(k, count[k]), rate, relative, bytes[k] / all_steps[k] / 1e6, 1000 * exposed[k] / all_steps[k],
               100 * exposed[k] / seconds[k], apart, count[k]
    }
    print ""
    about = "Accuracy: the mean over the seeds, the lowest and the highest. "
    if (untimed) print about "MB are of rank 0, which where a server serves all is that one."
    else print about "MB and times are of rank 0, which where a server serves all is that one: its exposed time is what workers wait."
}
