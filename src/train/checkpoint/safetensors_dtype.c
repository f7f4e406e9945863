#include "train/checkpoint/safetensors_dtype.h"

#include <string.h>

static const struct {
    rp_dtype dtype;
    const char *name;
} names[] = {
    {RP_F32, "F32"}, {RP_F16, "F16"}, {RP_BF16, "BF16"}, {RP_F64, "F64"}, {RP_I8, "I8"},
    {RP_U8, "U8"},   {RP_I16, "I16"}, {RP_I32, "I32"},   {RP_I64, "I64"}, {RP_U16, "U16"},
    {RP_U32, "U32"}, {RP_U64, "U64"}, {RP_BOOL, "BOOL"},
};
enum { NAMES = sizeof names / sizeof names[0] };

const char *rpi_safetensors_dtype(rp_dtype dtype) {
    for (int i = 0; i < NAMES; i++)
        if (names[i].dtype == dtype) return names[i].name;
    return NULL;
}

bool rpi_safetensors_dtype_parse(const char *name, rp_dtype *out_dtype) {
    for (int i = 0; i < NAMES; i++) {
        if (strcmp(names[i].name, name) != 0) continue;
        *out_dtype = names[i].dtype;
        return true;
    }
    return false;
}
