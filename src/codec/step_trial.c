#include "redpoll/adaptive.h"

#include "base/status.h"

#include <math.h>

/* A choice that is wrong by noise is to be exact. */
#define STEP_GAIN (1.0 / 30)

enum { WAYS = 2, OF_A_WAY = 1 + RP_TRIAL_STEPS, ALL = WAYS * OF_A_WAY };

/* The first step of a way pays for what the change itself costs. */
static void record(rp_step_trial *trial, double now_s) {
    int last = trial->steps - 1, place = last % OF_A_WAY - 1;
    if (last >= 0 && place >= 0)
        trial->seconds[last / OF_A_WAY][place] = now_s - trial->began_s;
}

int rp_step_trial_begin(rp_step_trial *trial, double now_s) {
    if (!trial) {
        (void)RP_FAIL(INVALID, "there is no trial");
        return RP_TRIAL_OVER;
    }
    if (trial->steps <= ALL) record(trial, now_s);
    trial->began_s = now_s;
    if (trial->steps <= ALL) trial->steps++;
    return trial->steps <= ALL ? (trial->steps - 1) / OF_A_WAY : RP_TRIAL_OVER;
}

rp_status rp_step_trial_times(const rp_step_trial *trial, double seconds[2]) {
    if (!trial || !seconds)
        return RP_FAIL(INVALID, "a trial and a place for its times are needed");
    if (trial->steps <= ALL)
        return RP_FAIL(INVALID, "the trial is not over: %d of %d steps have begun",
                       trial->steps, (int)ALL);
    for (int way = 0; way < WAYS; way++) {
        seconds[way] = trial->seconds[way][0];
        for (int i = 1; i < RP_TRIAL_STEPS; i++)
            seconds[way] = fmin(seconds[way], trial->seconds[way][i]);
    }
    return RP_OK;
}

int rp_step_trial_gains(const double seconds[2]) {
    if (!seconds) {
        (void)RP_FAIL(INVALID, "there are no times");
        return 0;
    }
    return seconds[RP_TRIAL_LOSSY] < seconds[RP_TRIAL_EXACT] * (1 - STEP_GAIN);
}
