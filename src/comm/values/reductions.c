#include "comm/values/reductions.h"

#include "base/status.h"
#include "codec/codec.h"
#include "codec/codec_convert.h"
#include "comm/values/reduction_loops.h"

static const rpi_reduce_loops plain = REDUCE_LOOPS;

static const rpi_reduce_loops *loops_of(rpi_isa isa) {
#if defined(__x86_64__)
    if (isa >= RPI_ISA_AVX2) return &rpi_reduce_loops_avx2;
#endif
    (void)isa;
    return &plain;
}

/* ---- what is defined ---- */

enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4, COMPLEX = 8, ALL = 15 };

static const struct {
    const char *name;
    int takes;
    bool adds;
    const char *takes_text;
} reductions[] = {
    [RP_SUM] = {"sum", ALL, true, "everything"},
    [RP_AVG] = {"avg", FLOATS | COMPLEX, true, "floats and complex numbers"},
    [RP_PRODUCT] = {"product", ALL, false, "everything"},
    [RP_MIN] = {"min", ALL & ~COMPLEX, false, "floats, integers and bool"},
    [RP_MAX] = {"max", ALL & ~COMPLEX, false, "floats, integers and bool"},
    [RP_BAND] = {"band", INTEGERS | BOOLS, false, "integers and bool"},
    [RP_BOR] = {"bor", INTEGERS | BOOLS, false, "integers and bool"},
    [RP_BXOR] = {"bxor", INTEGERS | BOOLS, false, "integers and bool"},
    [RP_PREMUL_SUM] = {"premul-sum", FLOATS | COMPLEX, true, "floats and complex numbers"},
};

enum { REDUCTIONS = sizeof reductions / sizeof reductions[0] };

static bool is_reduction(rp_reduction reduction) {
    return (unsigned)reduction < REDUCTIONS;
}

static int kind_of(rp_dtype dtype) {
    if (dtype == RP_BOOL) return BOOLS;
    if (dtype == RP_C64 || dtype == RP_C128) return COMPLEX;
    return rp_dtype_is_float(dtype) ? FLOATS : INTEGERS;
}

const char *rpi_reduction_name(rp_reduction reduction) {
    return is_reduction(reduction) ? reductions[reduction].name : "unknown";
}

bool rpi_reduction_adds(rp_reduction reduction) {
    return is_reduction(reduction) && reductions[reduction].adds;
}

rp_status rpi_reduction_check(rp_reduction reduction, rp_dtype dtype, const rp_codec *codec) {
    if (!is_reduction(reduction)) return RP_FAIL(INVALID, "%d is no reduction", (int)reduction);
    const char *name = reductions[reduction].name;
    if (!(reductions[reduction].takes & kind_of(dtype)))
        return RP_FAIL(INVALID, "%s of %s is not defined: it takes %s", name,
                       rp_dtype_name(dtype), reductions[reduction].takes_text);
    char text[64];
    if (!reductions[reduction].adds && !rp_codec_is_exact(codec, dtype))
        return RP_FAIL(UNSUPPORTED,
                       "codec %s is lossy for %s: it takes sum, avg and premul-sum, not %s",
                       rp_codec_text(codec, text, sizeof text), rp_dtype_name(dtype), name);
    return RP_OK;
}

/* ---- doing it ---- */

/* Truth values combine as bits: sum and max are "or", product and min "and". */
static rp_reduction of_bools(rp_reduction reduction) {
    switch (reduction) {
    case RP_SUM:
    case RP_MAX: return RP_BOR;
    case RP_PRODUCT:
    case RP_MIN: return RP_BAND;
    default: return reduction;
    }
}

static rpi_reduce_loop *loop_of(const rpi_reduce_loops *loops, rp_reduction reduction,
                                rp_dtype dtype) {
    switch (reduction) {
    case RP_PRODUCT: return loops->product[dtype];
    case RP_MIN: return loops->min[dtype];
    case RP_MAX: return loops->max[dtype];
    case RP_BAND: return loops->band;
    case RP_BOR: return loops->bor;
    default: return loops->bxor;
    }
}

static void reduce_half(rpi_reduce_loop *loop, rpi_isa isa, rp_dtype dtype, const void *in,
                        size_t count, float *into) {
    for (size_t i = 0, n; i < count; i += n) {
        float tile[RPI_TILE];
        n = count - i < RPI_TILE ? count - i : RPI_TILE;
        rpi_convert(dtype, isa)->widen((const char *)in + 2 * i, n, tile);
        loop(tile, n, into + i);
    }
}

void rpi_reduce(rp_reduction reduction, rpi_isa isa, rp_dtype dtype, const void *in,
                size_t count, void *into) {
    const rpi_reduce_loops *loops = loops_of(isa);
    if (dtype == RP_BOOL) reduction = of_bools(reduction);
    if (rpi_reduction_adds(reduction)) {
        /* The bytes of the exact codec are the elements: its decode-and-add adds arrays. */
        rpi_codec_at(0)->decode_add(NULL, isa, dtype, in, count, &(rp_encode_context){0}, into);
        return;
    }
    if (dtype == RP_F16 || dtype == RP_BF16) {
        reduce_half(loop_of(loops, reduction, RP_F32), isa, dtype, in, count, into);
        return;
    }
    bool bits = reduction >= RP_BAND;
    loop_of(loops, reduction, dtype)(in, bits ? count * rp_dtype_bytes(dtype) : count, into);
}

static const char *const forms[] = {"fetch", "plain", NULL};

static bool run_form(int form, float *memory) {
    enum { COUNT = RPI_FORM_BYTES / sizeof(float) / 4 };
    loops_of(rpi_cpu_isa())
        ->add_two[RP_F32](memory, memory + COUNT, 1, COUNT, memory + 2 * COUNT,
                          memory + 3 * COUNT, form);
    return true;
}

rpi_kernel_form rpi_add_two_form = {.kernel = "add-two", .names = forms, .run = run_form};

bool rpi_add_two(rpi_isa isa, rp_dtype dtype, const void *first, const void *second,
                 double factor, size_t count, void *into, void *also, bool is_long) {
    rpi_add_two_loop *loop = loops_of(isa)->add_two[dtype];
    if (!loop) return false;
    int form = rpi_form_for(&rpi_add_two_form, count * rp_dtype_bytes(dtype));
    if (form == RPI_ADD_TWO_FETCHES && is_long) form = RPI_ADD_TWO_FETCHES_ALSO;
    loop(first, second, factor, count, into, also, form);
    return true;
}
