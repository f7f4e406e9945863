/* One softmax over all tokens in place of the two of an adaptive one. */
#ifndef RPI_TRAIN_CLUSTER_SCORES_H
#define RPI_TRAIN_CLUSTER_SCORES_H

#include "engine/layers.h"

/* scores [vocabulary]: each token's in its softmax, in: that of the frequent tokens and the
 * clusters, or of its cluster. Out: logits of all tokens, whose softmax is what the two give
 * together. clusters [cutoff_count]: their scores in the first softmax, in the order in which
 * they lie there, the last cluster first. */
void rpi_cluster_scores_join(const rpi_adaptive_attributes *adaptive, const float *clusters,
                             int64_t vocabulary, float *scores);

#endif
