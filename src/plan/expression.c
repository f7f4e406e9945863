#include "plan/expression.h"

#include "base/memory.h"

static size_t slot_of(const rpi_expressions *known, const rpi_expression *it) {
    uint64_t hash = it->operation;
    hash = (hash ^ (uint64_t)it->left) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 32 ^ (uint64_t)it->right) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 20) % (2 * known->room);
}

/* The slot where the expression is, or belongs. */
static size_t find(const rpi_expressions *known, const rpi_expression *it) {
    size_t slot = slot_of(known, it);
    for (; known->table[slot]; slot = (slot + 1) % (2 * known->room)) {
        const rpi_expression *other = &known->list[known->table[slot] - 1];
        if (other->operation == it->operation && other->left == it->left &&
            other->right == it->right)
            break;
    }
    return slot;
}

static rp_status grow(rpi_expressions *known) {
    size_t room = known->room ? 2 * known->room : 64;
    RP_TRY(rpi_grow_array(known->used, room, sizeof *known->list, "expressions to prove",
                          &known->list));
    int *table = NULL;
    RP_TRY(rpi_alloc_array(2 * room, sizeof *table, "expressions to prove", &table));
    rpi_free(known->table);
    known->table = table;
    known->room = room;
    for (size_t i = 0; i < known->used; i++)
        known->table[find(known, &known->list[i])] = (int)i + 1;
    return RP_OK;
}

static bool is_round(const rpi_expressions *known, int64_t number) {
    uint32_t operation = known->list[number].operation;
    return operation == RPI_OPERATION_INPUT || operation == RPI_OPERATION_ENCODED ||
           operation == RPI_OPERATION_ROUNDED;
}

rp_status rpi_expression_number(rpi_expressions *known, rpi_operation operation, int64_t left,
                                int64_t right, int *out_number) {
    rpi_expression it = {.operation = operation, .left = left, .right = right};
    if (operation == RPI_OPERATION_ROUNDED && is_round(known, left)) {
        *out_number = (int)left;
        return RP_OK;
    }
    if (known->used == known->room) RP_TRY(grow(known));
    size_t slot = find(known, &it);
    if (!known->table[slot]) {
        known->list[known->used++] = it;
        known->table[slot] = (int)known->used;
    }
    *out_number = known->table[slot] - 1;
    return RP_OK;
}

void rpi_expressions_free(rpi_expressions *known) {
    rpi_free(known->list);
    rpi_free(known->table);
    *known = (rpi_expressions){0};
}
