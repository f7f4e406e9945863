#include "train/generation/cluster_scores.h"

#include <math.h>

static double log_sum_exp(const float *scores, int64_t count) {
    double sum = 0;
    float most = scores[0];
    for (int64_t i = 1; i < count; i++)
        if (scores[i] > most) most = scores[i];
    for (int64_t i = 0; i < count; i++) sum += exp((double)scores[i] - (double)most);
    return (double)most + log(sum);
}

void rpi_cluster_scores_join(const rpi_adaptive_attributes *adaptive, const float *clusters,
                             int64_t vocabulary, float *scores) {
    for (int i = 0; i < adaptive->cutoff_count; i++) {
        bool is_last = i + 1 == adaptive->cutoff_count;
        int64_t first = adaptive->cutoffs[i];
        int64_t end = is_last ? vocabulary : adaptive->cutoffs[i + 1];
        double cluster = (double)clusters[adaptive->cutoff_count - 1 - i];
        double shift = cluster - log_sum_exp(scores + first, end - first);
        for (int64_t j = first; j < end; j++) scores[j] = (float)((double)scores[j] + shift);
    }
}
