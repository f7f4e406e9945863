#include "plan/outline.h"

#include "plan/layout.h"
#include "plan/split.h"

#include <math.h>

static void count_turns(const rpi_host_layout *layout, rpi_world_shape *shape) {
    int turns = 0;
    for (int host = 0; host < layout->hosts; host++) {
        int leaving = 0;
        for (int i = layout->first[host]; i < layout->first[host + 1]; i++) {
            int next = (layout->ranks[i] + 1) % layout->world;
            leaving += layout->host_of[next] != host;
        }
        turns += leaving;
        if (leaving > shape->leaving) shape->leaving = leaving;
    }
    shape->turns = (double)turns / layout->world;
}

rp_status rpi_world_shape_make(const rpi_plan_request *request, rpi_world_shape *out_scale) {
    rpi_host_layout layout;
    RP_TRY(rpi_layout_make(request, &layout));
    *out_scale = (rpi_world_shape){
        .world = request->world, .hosts = layout.hosts, .widest = layout.widest};
    count_turns(&layout, out_scale);
    rpi_layout_free(&layout);
    return RP_OK;
}

int rpi_log2_up(int number) {
    int log = 0;
    while (1 << log < number) log++;
    return log;
}

static double over(double amount, double rate) {
    return rate > 0 ? amount / rate : 0;
}

bool rpi_is_oversubscribed(long ranks, long cores) {
    return cores > 0 && ranks > RPI_OVERSUBSCRIBED * cores;
}

/* Ranks of the widest host for each of its cores; 1 where they are no crowd. */
static double crowd_of(const rpi_world_shape *shape, const rpi_cost_model *m) {
    return rpi_is_oversubscribed(shape->widest, m->cores) ? (double)shape->widest / m->cores
                                                          : 1;
}

/* What keeps the nic, the memory and the core busy; with many chunks they work at once, and
 * the longest decides. */
double rpi_outline_price(const rpi_outline *o, const rpi_world_shape *shape, size_t bytes,
                         size_t encoded, const rpi_cost_model *m) {
    double crowd = crowd_of(shape, m), turns = crowd * (o->share > 0 ? o->share : 1);
    if (turns < 1) turns = 1;
    int parts = o->parts > 0 ? o->parts : 1;
    double chunks = rpi_split_chunks(bytes, encoded, m->chunk_bytes, parts);
    double nic_s = over(o->host_bytes * (double)encoded, m->bytes_per_s);
    double inside_s = over(o->inside_bytes * (double)encoded + o->inside_values * (double)bytes,
                           m->inside_bytes_per_s);
    double core_s =
        over(o->worked * (double)bytes, m->decode_add_bytes_s) +
        chunks * (o->frames_between * m->frame_s + o->frames_inside * m->inside_frame_s);
    inside_s *= turns; /* whatever moves inside a host is moved by its cores */
    core_s *= turns;
    double latency_s = o->rounds_between * m->latency_s +
                       o->rounds_inside * m->inside_latency_s +
                       (o->rounds_between + o->rounds_inside) * (crowd - 1) * m->turn_s;
    double longest_s = fmax(nic_s, fmax(inside_s, core_s));
    return latency_s + longest_s + (nic_s + inside_s + core_s - longest_s) / chunks;
}

rpi_outline rpi_outline_all_pairs(const rpi_world_shape *s, double rounds, double vectors) {
    double others = s->world - 1, away = s->world - s->widest;
    double share = others > 0 ? away / others : 0; /* of its frames that leave a rank's host */
    return (rpi_outline){.rounds_between = away > 0 ? rounds : 0,
                         .rounds_inside = away > 0 ? 0 : rounds,
                         .frames_between = 2 * rounds * away,
                         .frames_inside = 2 * rounds * (others - away),
                         .host_bytes = s->widest * vectors * share,
                         .inside_bytes = vectors * (1 - share),
                         .worked = 2 * rounds,
                         .parts = s->world};
}

rpi_outline rpi_outline_star(const rpi_world_shape *s) {
    double others = s->world - 1, away = s->world - s->widest;
    return (rpi_outline){.rounds_between = away > 0 ? 2 : 0,
                         .rounds_inside = away > 0 || others <= 0 ? 0 : 2,
                         .frames_between = 2 * away,
                         .frames_inside = 2 * (others - away),
                         .parts = 1,
                         .share = 3.0 / (s->world + 2.0)};
}

rpi_outline rpi_outline_ring(const rpi_world_shape *s, double hops) {
    bool crosses = s->hosts > 1;
    return (rpi_outline){.rounds_between = hops * s->turns,
                         .rounds_inside = hops * (1 - s->turns),
                         .frames_between = crosses ? 2 * hops : 0,
                         .frames_inside = crosses ? 0 : 2 * hops,
                         .host_bytes = s->leaving * hops / s->world,
                         .inside_bytes = s->turns < 1 ? hops / s->world : 0,
                         .worked = 2 * hops / s->world,
                         .parts = s->world};
}
