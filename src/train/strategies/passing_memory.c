#include "train/strategies/passing_memory.h"

#include "base/memory.h"
#include "base/status.h"
#include "methods/vector_memory.h"

/* A model has at most two tables, at its ends, which are far larger than the buckets between
 * them. */
enum { TABLES = 2 };

/* Elements of the largest bucket that is not a table. */
static int64_t usual_of(const rpi_buckets *buckets) {
    int64_t largest[TABLES + 1] = {0};
    for (int i = 0; i < buckets->count; i++) {
        int64_t count = buckets->buckets[i].count;
        for (int k = 0; k <= TABLES; k++) {
            int64_t less = largest[k] < count ? largest[k] : count;
            if (largest[k] < count) largest[k] = count;
            count = less;
        }
    }
    int at = 0;
    while (at < TABLES && largest[TABLES] && largest[at] > 2 * largest[TABLES]) at++;
    return largest[at];
}

int64_t rpi_passing_memory_foresee(const rpi_buckets *buckets, int places) {
    int64_t usual = usual_of(buckets), larger = 0;
    int ordinary = 0;
    for (int i = 0; i < buckets->count; i++)
        if (buckets->buckets[i].count <= usual)
            ordinary++;
        else
            larger += buckets->buckets[i].count;
    return usual * (ordinary < places ? ordinary : places) + larger;
}

rp_status rpi_passing_memory_open(const rpi_buckets *buckets, const rp_comm *comm,
                                  const char *what, rpi_passing_memory *out) {
    rpi_passing_memory memory = {
        .buckets = buckets, .comm = comm, .what = what, .usual = usual_of(buckets)};
    size_t count = (size_t)buckets->count;
    RP_TRY(rpi_alloc_array(count, sizeof *memory.of_buckets, "places", &memory.of_buckets));
    rp_status status = rpi_alloc_array(count, sizeof *memory.larger, "places", &memory.larger);
    if (status == RP_OK)
        *out = memory;
    else
        rpi_free(memory.of_buckets);
    return status;
}

static bool has_usual_place(const rpi_passing_memory *m, int bucket) {
    return m->buckets->buckets[bucket].count <= m->usual;
}

static void free_place(const rpi_passing_memory *m, bool is_usual_place, float *place) {
    if (is_usual_place && m->comm)
        rpi_vector_free(place);
    else
        rpi_free(place);
}

void rpi_passing_memory_close(rpi_passing_memory *m) {
    for (int i = 0; m->of_buckets && i < m->buckets->count; i++)
        free_place(m, has_usual_place(m, i), m->of_buckets[i]);
    for (int i = 0; i < m->free_count; i++) free_place(m, true, m->free[i]);
    for (int i = 0; m->larger && i < m->buckets->count; i++) rpi_free(m->larger[i]);
    rpi_free(m->of_buckets);
    rpi_free(m->larger);
    *m = (rpi_passing_memory){0};
}

static rp_status new_place(const rpi_passing_memory *m, int bucket, float **out_place) {
    void *place = NULL;
    bool is_usual_place = has_usual_place(m, bucket);
    int64_t elements = is_usual_place ? m->usual : m->buckets->buckets[bucket].count;
    size_t bytes = (size_t)elements * sizeof(float);
    RP_TRY(is_usual_place && m->comm ? rpi_vector_alloc(m->comm, bytes, m->what, &place)
                                     : rpi_alloc(bytes, m->what, &place));
    *out_place = place;
    return RP_OK;
}

rp_status rpi_passing_memory_take(rpi_passing_memory *m, int bucket) {
    float **place = &m->of_buckets[bucket];
    if (has_usual_place(m, bucket) && m->free_count) {
        *place = m->free[--m->free_count];
    } else if (m->larger[bucket]) {
        *place = m->larger[bucket];
        m->larger[bucket] = NULL;
    } else {
        RP_TRY(new_place(m, bucket, place));
    }
    m->elements += m->buckets->buckets[bucket].count;
    if (m->elements > m->most) m->most = m->elements;
    return RP_OK;
}

void rpi_passing_memory_give(rpi_passing_memory *m, int bucket) {
    float *place = m->of_buckets[bucket];
    if (!place) return;
    m->of_buckets[bucket] = NULL;
    m->elements -= m->buckets->buckets[bucket].count;
    if (!has_usual_place(m, bucket))
        m->larger[bucket] = place;
    else if (m->free_count < RPI_PASSING_PLACES)
        m->free[m->free_count++] = place;
    else
        free_place(m, true, place);
}
