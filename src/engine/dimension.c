#include "engine/dimension.h"

#include <stdio.h>
#include <string.h>

/* Bits: 63 set | 24 of powers | 32 of the coefficient, the highest of which is 0. */
enum { POWER_BITS = 3, MOST_POWER = (1 << POWER_BITS) - 1, FIRST_POWER = 32 };
#define MOST_COEFFICIENT INT64_C(0x7fffffff)

typedef struct product {
    int64_t coefficient;
    int powers[RPI_DIMENSIONS];
} product;

static product unpack(int64_t size) {
    product it = {.coefficient = size};
    if (!rpi_dimension_is_named(size)) return it;
    it.coefficient = size & MOST_COEFFICIENT;
    for (int i = 0; i < RPI_DIMENSIONS; i++)
        it.powers[i] = (int)((uint64_t)size >> (FIRST_POWER + i * POWER_BITS)) & MOST_POWER;
    return it;
}

static bool pack(const product *it, int64_t *out_size) {
    uint64_t bits = 0;
    for (int i = 0; i < RPI_DIMENSIONS; i++) {
        if (it->powers[i] < 0 || it->powers[i] > MOST_POWER) return false;
        bits |= (uint64_t)it->powers[i] << (FIRST_POWER + i * POWER_BITS);
    }
    if (bits && it->coefficient > MOST_COEFFICIENT) return false;
    *out_size = bits ? INT64_MIN | (int64_t)bits | it->coefficient : it->coefficient;
    return true;
}

int64_t rpi_dimension_symbol(int index) {
    product it = {.coefficient = 1};
    int64_t size = 0;
    it.powers[index] = 1;
    (void)pack(&it, &size);
    return size;
}

bool rpi_dimension_multiply(int64_t a, int64_t b, int64_t *out_product) {
    product x = unpack(a), y = unpack(b);
    if (__builtin_mul_overflow(x.coefficient, y.coefficient, &x.coefficient)) return false;
    for (int i = 0; i < RPI_DIMENSIONS; i++) x.powers[i] += y.powers[i];
    return pack(&x, out_product);
}

bool rpi_dimension_divide(int64_t a, int64_t b, int64_t *out_quotient) {
    product x = unpack(a), y = unpack(b);
    if (y.coefficient == 0 || x.coefficient % y.coefficient != 0) return false;
    x.coefficient /= y.coefficient;
    for (int i = 0; i < RPI_DIMENSIONS; i++) x.powers[i] -= y.powers[i];
    return pack(&x, out_quotient);
}

bool rpi_dimension_bind(int64_t size, const int64_t *sizes, int64_t *out_number) {
    product it = unpack(size);
    int64_t number = it.coefficient;
    for (int i = 0; i < RPI_DIMENSIONS; i++)
        for (int power = 0; power < it.powers[i]; power++) {
            *out_number = sizes[i] ? -1 : i;
            if (!sizes[i] || __builtin_mul_overflow(number, sizes[i], &number)) return false;
        }
    *out_number = number;
    return true;
}

const char *rpi_dimension_text(int64_t size, const char *const *names, char *text,
                               size_t bytes) {
    product it = unpack(size);
    size_t used = 0;
    bool alone = !rpi_dimension_is_named(size);
    text[0] = '\0';
    if (alone || it.coefficient != 1)
        used = (size_t)snprintf(text, bytes, "%lld", (long long)it.coefficient);
    for (int i = 0; i < RPI_DIMENSIONS; i++)
        for (int power = 0; power < it.powers[i] && used < bytes; power++) {
            const char *times = used ? "*" : "";
            used += names ? (size_t)snprintf(text + used, bytes - used, "%s%s", times, names[i])
                          : (size_t)snprintf(text + used, bytes - used, "%s$%d", times, i);
        }
    return text;
}

void rpi_dimension_name_all(const char *message, const char *const *names, int count,
                            char *text, size_t bytes) {
    size_t used = 0;
    for (const char *at = message; *at && used + 1 < bytes; at++) {
        int index = at[0] == '$' ? at[1] - '0' : -1;
        if (index < 0 || index >= count) {
            text[used++] = *at;
            continue;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s", names[index]);
        at++;
    }
    text[used < bytes ? used : bytes - 1] = '\0';
}
