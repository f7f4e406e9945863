#include "cli/plan_spot_said.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "base/units.h"
#include "plan/foresight/interval_rule.h"
#include "plan/foresight/node_rate.h"

#include <math.h>
#include <string.h>

enum { MOST_FILE = 1 << 26 };

double rpi_spot_span(const char *text) {
    double seconds = 0;
    if (text) (void)rpi_parse_span(text, &seconds); /* was checked */
    return seconds;
}

double rpi_spot_price(const char *text) {
    double price = -1;
    if (text) (void)rpi_price_parse(text, &price);
    return price;
}

rp_status rpi_spot_said_check(const rpi_spot_said *said, const char *option, int64_t most) {
    if (said->interval && !(rpi_spot_span(said->interval) > 0))
        return RP_FAIL(INVALID, "--interval 0 leaves no work between two saves");
    if (most && said->least > most)
        return RP_FAIL(INVALID, "--least %lld is more than --%s %lld", (long long)said->least,
                       option, (long long)most);
    return RP_OK;
}

/* Text would end there, and what is behind it would be passed over. */
static rp_status check_text(const char *text, size_t bytes) {
    int line = 1;
    const char *nul = memchr(text, '\0', bytes);
    for (const char *at = text; nul && at < nul; at++) line += *at == '\n';
    return nul ? RP_FAIL(INVALID, "line %d: a NUL byte; a trace is text", line) : RP_OK;
}

rp_status rpi_spot_trace_read(const char *file, int64_t least, rpi_spot_trace *out_trace,
                              rpi_spot_facts *out_facts) {
    char *text = NULL;
    size_t bytes;
    RP_TRY(rpi_regular_file_read(file, MOST_FILE, &text, &bytes));
    rp_status status = check_text(text, bytes);
    if (status == RP_OK) status = rpi_spot_trace_parse(text, out_trace);
    rpi_free(text);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", file);
    *out_facts = rpi_spot_trace_facts(out_trace);
    if (out_facts->node_seconds == 0)
        status = RP_FAIL(INVALID, "%s: it never has a node", file);
    else if (least > out_facts->most_nodes)
        status = RP_FAIL(INVALID, "--least %lld: the trace has %lld nodes at most",
                         (long long)least, (long long)out_facts->most_nodes);
    if (status != RP_OK) rpi_free(out_trace->changes);
    return status;
}

rpi_spot_rules rpi_spot_rules_of(const rpi_spot_said *said, int64_t most, double save_s,
                                 double restart_s) {
    double notice_s = rpi_spot_span(said->notice);
    return (rpi_spot_rules){.most = most,
                            .least = said->least,
                            .save_s = save_s,
                            .notice_fits = notice_s > 0 && notice_s >= save_s,
                            .restart_s = restart_s,
                            .stall_s = rpi_spot_span(said->stall),
                            .join_s = rpi_spot_span(said->join)};
}

double rpi_spot_exact_interval(const rpi_spot_trace *trace, rpi_spot_rules rules) {
    double seconds = trace->changes[trace->count - 1].second - trace->changes[0].second;
    rules.interval_s = seconds;
    double changes = (double)rpi_spot_replay(trace, &rules).changes;
    rpi_failures f = {.failures_per_s = fmax(changes, 1) / seconds,
                      .save_s = fmax(rules.save_s, 1),
                      .restart_s = rules.restart_s};
    return rpi_interval_rule_at(0)->interval_s(&f);
}
