#include "train/tokenizers/pipeline.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096 };

rp_status rpi_pipeline_state(rpi_pipeline_memory *memory, size_t bytes, void *out_state) {
    if (!memory->arena) RP_TRY(rpi_arena_create(BLOCK, &memory->arena));
    return rpi_arena_alloc(memory->arena, bytes, out_state);
}

rp_status rpi_pipeline_text(rpi_pipeline_memory *memory, const char *text, const char **out) {
    char *copy = NULL;
    size_t bytes = strlen(text) + 1;
    RP_TRY(rpi_pipeline_state(memory, bytes, &copy));
    memcpy(copy, text, bytes);
    *out = copy;
    return RP_OK;
}

static rp_status add_pattern(rpi_pipeline_memory *memory, const char *text, bool literal,
                             rpi_pattern **out_pattern) {
    if (memory->pattern_count == RPI_PATTERNS_MOST)
        return RP_FAIL(UNSUPPORTED, "more than %d patterns", RPI_PATTERNS_MOST);
    RP_TRY(rpi_pattern_compile(text, literal, out_pattern));
    memory->patterns[memory->pattern_count++] = *out_pattern;
    return RP_OK;
}

rp_status rpi_pipeline_regex(rpi_pipeline_memory *memory, const char *text,
                             rpi_pattern **out_pattern) {
    return add_pattern(memory, text, false, out_pattern);
}

rp_status rpi_pipeline_pattern(rpi_pipeline_memory *memory, const cJSON *object,
                               const char *key, rpi_pattern **out_pattern) {
    const cJSON *member = NULL;
    const char *text = NULL;
    RP_TRY(rpi_json_member(object, key, &member));
    bool literal = rpi_json_has(member, "String");
    RP_TRY(rpi_json_text(member, literal ? "String" : "Regex", NULL, &text));
    if (!text || !*text) return RP_FAIL(CORRUPT, "'%s' has neither a String nor a Regex", key);
    return add_pattern(memory, text, literal, out_pattern);
}

void rpi_pipeline_memory_free(rpi_pipeline_memory *memory) {
    for (int i = 0; i < memory->pattern_count; i++) rpi_pattern_free(memory->patterns[i]);
    rpi_arena_destroy(memory->arena);
    *memory = (rpi_pipeline_memory){0};
}

static rp_status push(rpi_steps *steps, const rpi_text_step_kind *kind, const void *state) {
    if (steps->count == RPI_STEPS_MOST)
        return RP_FAIL(UNSUPPORTED, "more than %d steps", RPI_STEPS_MOST);
    steps->at[steps->count++] = (rpi_text_step){kind, state};
    return RP_OK;
}

static rp_status refuse(const rpi_step_family *family) {
    const rpi_text_step_kind *kind;
    char names[320] = "";
    size_t used = 0;
    for (int i = 0; (kind = family->kind_at(i)) != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", kind->type);
    return RP_FAIL(UNSUPPORTED, "not supported; there are %sSequence", names);
}

static rp_status add(rpi_pipeline_memory *memory, const cJSON *json,
                     const rpi_step_family *family, rpi_steps *steps) {
    const rpi_text_step_kind *kind;
    for (int i = 0; (kind = family->kind_at(i)) != NULL; i++) {
        if (strcmp(kind->type, rpi_json_type(json)) != 0) continue;
        void *state = NULL;
        if (kind->load) RP_TRY(kind->load(memory, json, &state));
        return push(steps, kind, state);
    }
    return refuse(family);
}

static rp_status load_one(rpi_pipeline_memory *memory, const cJSON *json,
                          const rpi_step_family *family, rpi_steps *steps) {
    const char *type = rpi_json_type(json);
    rp_status status = add(memory, json, family, steps);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "%s %s: ", family->name, type);
}

/* A Sequence in a Sequence is allowed, but not without end. */
static rp_status load_nested(rpi_pipeline_memory *memory, const cJSON *json, int depth,
                             const rpi_step_family *family, rpi_steps *steps) {
    if (!json || cJSON_IsNull(json)) return RP_OK;
    if (!cJSON_IsObject(json)) return RP_FAIL(CORRUPT, "'%s' is no object", family->name);
    if (strcmp(rpi_json_type(json), "Sequence") != 0)
        return load_one(memory, json, family, steps);
    if (depth == 4) return RP_FAIL(UNSUPPORTED, "%s: sequences too deep", family->name);
    const cJSON *list = NULL, *item;
    RP_TRY(rpi_json_member(json, family->members, &list));
    cJSON_ArrayForEach(item, list) RP_TRY(load_nested(memory, item, depth + 1, family, steps));
    return RP_OK;
}

rp_status rpi_steps_load(rpi_pipeline_memory *memory, const cJSON *json,
                         const rpi_step_family *family, rpi_steps *steps) {
    return load_nested(memory, json, 0, family, steps);
}
