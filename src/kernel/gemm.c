/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c - packs operands and walks the tiles.  Knows no intrinsics and starts no threads: callers
 * cut their products into tasks.
 */
#include "kernel/gemm.h"

#include <string.h>

#include "base/float_env.h"
#include "base/mem.h"
#include "fp8q.h"

/* Columns of k that one pass takes: a tile's rows of A (at most 14 x 512 floats) stay in the first
 * level cache, 128 rows of B (256 KiB) in the second.  */
#define K_PASS 512

#ifdef FP8Q_HAVE_GEMM_AVX512
extern const struct fp8q_gemm fp8q_gemm_avx512, fp8q_gemm_avx512_bf16;
#endif
#ifdef FP8Q_HAVE_GEMM_AVX2
extern const struct fp8q_gemm fp8q_gemm_avx2;
#endif

const struct fp8q_gemm *const fp8q_gemms[] = {
#ifdef FP8Q_HAVE_GEMM_AVX512
    &fp8q_gemm_avx512_bf16, &fp8q_gemm_avx512,
#endif
#ifdef FP8Q_HAVE_GEMM_AVX2
    &fp8q_gemm_avx2,
#endif
    &fp8q_gemm_scalar,      NULL,
};

const struct fp8q_gemm *fp8q_gemm_select(const char *name)
{
    for (size_t i = 0; fp8q_gemms[i]; i++)
        if (fp8q_gemms[i]->usable() && (!name || strcmp(name, fp8q_gemms[i]->name) == 0))
            return fp8q_gemms[i];

    /* Works everywhere, so there is always an answer.  */
    return &fp8q_gemm_scalar;
}

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

size_t fp8q_packed_a(const struct fp8q_gemm *g, size_t n_rows, size_t n_k)
{
    return round_up(n_rows, g->mr) * n_k;
}

size_t fp8q_packed_b(const struct fp8q_gemm *g, size_t n_rows, size_t n_k)
{
    return round_up(n_rows, g->nr) * n_k;
}

static void pack(size_t group, struct fp8q_strided x, size_t n_rows, size_t n_k, float *out)
{
    for (size_t row = 0; row < n_rows; row += group) {
        size_t n = n_rows - row < group ? n_rows - row : group;
        const float *src = x.x + row * x.row;

        /* Zeros for rows that are missing: the tile is computed like any other.  */
        if (n < group)
            memset(out, 0, group * n_k * sizeof(*out));

        /* Of a transposed operand the rows of a group lie side by side.  */
        if (x.row == 1) {
            for (size_t k = 0; k < n_k; k++)
                memcpy(out + k * group, src + k * x.col, n * sizeof(*out));
        } else {
            /* Short runs of k, so that the lines of all rows stay cached whatever the stride.  */
            for (size_t k0 = 0; k0 < n_k; k0 += 16) {
                size_t k1 = n_k - k0 < 16 ? n_k : k0 + 16;
                for (size_t i = 0; i < n; i++)
                    for (size_t k = k0; k < k1; k++)
                        out[k * group + i] = src[i * x.row + k * x.col];
            }
        }
        out += group * n_k;
    }
}

void fp8q_pack_a(const struct fp8q_gemm *g, struct fp8q_strided a, size_t n_rows, size_t n_k,
                 float *packed_out)
{
    pack(g->mr, a, n_rows, n_k, packed_out);
}

void fp8q_pack_b(const struct fp8q_gemm *g, struct fp8q_strided b, size_t n_rows, size_t n_k,
                 float *packed_out)
{
    pack(g->nr, b, n_rows, n_k, packed_out);
}

#define MAX_TILE (16 * 32)

/* A tile that sticks out of C goes through a full one.  */
static void edge_tile(const struct fp8q_gemm *g, size_t n_rows, size_t n_cols, size_t n_k,
                      const float *a, const float *b, float *c, size_t ldc, bool add)
{
    float tile[MAX_TILE];

    memset(tile, 0, sizeof(tile));
    if (add)
        for (size_t i = 0; i < n_rows; i++)
            memcpy(tile + i * g->nr, c + i * ldc, n_cols * sizeof(*c));

    g->micro(n_k, a, b, tile, g->nr, add);

    for (size_t i = 0; i < n_rows; i++)
        memcpy(c + i * ldc, tile + i * g->nr, n_cols * sizeof(*c));
}

static __attribute__((noinline)) void packed(const struct fp8q_gemm *g, size_t n_rows,
                                             size_t n_cols, size_t n_k, const float *a_packed,
                                             const float *b_packed, float *c, size_t ldc)
{
    /* No pass would run, and C would keep what was in it.  */
    if (n_k == 0)
        for (size_t i = 0; i < n_rows; i++)
            memset(c + i * ldc, 0, n_cols * sizeof(*c));

    /* A pass over K at a time: the packed columns of one pass stay in the cache for all rows.  */
    for (size_t k = 0; k < n_k; k += K_PASS) {
        size_t pass = fp8q_min_size(n_k - k, K_PASS);
        for (size_t i = 0; i < n_rows; i += g->mr) {
            size_t rows = fp8q_min_size(n_rows - i, g->mr);
            const float *a = a_packed + i * n_k + k * g->mr;
            for (size_t j = 0; j < n_cols; j += g->nr) {
                size_t cols = fp8q_min_size(n_cols - j, g->nr);
                const float *b = b_packed + j * n_k + k * g->nr;

                /* The first pass sets C, the later ones add to it.  */
                if (rows == g->mr && cols == g->nr)
                    g->micro(pass, a, b, c + i * ldc + j, ldc, k > 0);
                else
                    edge_tile(g, rows, cols, pass, a, b, c + i * ldc + j, ldc, k > 0);
            }
        }
    }
}

void fp8q_gemm_packed(const struct fp8q_gemm *g, size_t n_rows, size_t n_cols, size_t n_k,
                      const float *a_packed, const float *b_packed, float *c, size_t ldc)
{
    /* The result must not depend on the mode of the host program.  */
    uint64_t mode = fp8q_float_env_enter();
    packed(g, n_rows, n_cols, n_k, a_packed, b_packed, c, ldc);
    fp8q_float_env_leave(mode);
}

/* ---- FP8 values -------------------------------------------------------------------------------- */

size_t fp8q_n_segments(const struct fp8q_fp8_shape *shape)
{
    return (shape->n_k + shape->step - 1) / shape->step;
}

size_t fp8q_fp8_words(const struct fp8q_gemm *g, size_t n_k)
{
    return g->pairs ? (n_k + 1) / 2 : n_k;
}

/* E4M3 is exact in BF16, whose pattern is the upper half of the F32.  */
static uint32_t upper_half(uint8_t code)
{
    uint32_t bits;
    memcpy(&bits, &fp8q_e4m3_value[code], sizeof(bits));
    return bits & 0xFFFF0000;
}

static uint32_t pair(const uint8_t *codes, size_t k, size_t n_k)
{
    return upper_half(codes[k]) | (k + 1 < n_k ? upper_half(codes[k + 1]) >> 16 : 0);
}

void fp8q_pack_fp8(const struct fp8q_gemm *g, size_t group, const uint8_t *codes, size_t n_rows,
                   size_t n_k, void *packed_out)
{
    size_t n_words = fp8q_fp8_words(g, n_k);
    uint32_t *out = packed_out;

    for (size_t row = 0; row < n_rows; row += group, out += group * n_words) {
        size_t n = fp8q_min_size(n_rows - row, group);
        if (n < group)
            memset(out, 0, group * n_words * sizeof(*out));

        for (size_t i = 0; i < n; i++) {
            const uint8_t *src = codes + (row + i) * n_k;
            if (g->pairs)
                for (size_t k = 0; k < n_words; k++)
                    out[k * group + i] = pair(src, 2 * k, n_k);
            else
                for (size_t k = 0; k < n_k; k++)
                    memcpy(&out[k * group + i], &fp8q_e4m3_value[src[k]], sizeof(*out));
        }
    }
}

/* One segment of a product.  */
struct segment {
    size_t n_k;
    const uint32_t *a, *b;   /* of the first group */
    size_t a_group, b_group; /* words from group to group */
    const float *a_scale, *b_scale;
};

/* The tile at [i, j]; one that sticks out of C goes through a full one.  */
static void add_tile(const struct fp8q_gemm *g, const struct segment *s,
                     const struct fp8q_fp8_shape *shape, size_t i, size_t j, float *c, size_t ldc)
{
    size_t n_rows = fp8q_min_size(shape->n_rows - i, g->mr);
    size_t n_cols = fp8q_min_size(shape->n_cols - j, g->nr);
    const uint32_t *a = s->a + i / g->mr * s->a_group, *b = s->b + j / g->nr * s->b_group;
    float *at = c + i * ldc + j;
    if (n_rows == g->mr && n_cols == g->nr) {
        g->micro_fp8(s->n_k, a, b, s->a_scale + i, s->b_scale + j, at, ldc);
        return;
    }

    float tile[MAX_TILE] = {0}, a_scale[16] = {0}, b_scale[32] = {0};
    memcpy(a_scale, s->a_scale + i, n_rows * sizeof(float));
    memcpy(b_scale, s->b_scale + j, n_cols * sizeof(float));
    for (size_t r = 0; r < n_rows; r++)
        memcpy(tile + r * g->nr, at + r * ldc, n_cols * sizeof(*c));

    g->micro_fp8(s->n_k, a, b, a_scale, b_scale, tile, g->nr);

    for (size_t r = 0; r < n_rows; r++)
        memcpy(at + r * ldc, tile + r * g->nr, n_cols * sizeof(*c));
}

static __attribute__((noinline)) void
gemm_fp8(const struct fp8q_gemm *g, const struct fp8q_fp8_shape *shape,
         const struct fp8q_fp8_operand *a, const struct fp8q_fp8_operand *b, float *c, size_t ldc)
{
    for (size_t i = 0; i < shape->n_rows; i++)
        memset(c + i * ldc, 0, shape->n_cols * sizeof(*c));

    /* Segment by segment, so that what the columns of one take stays in the first level cache.  */
    size_t row_words = fp8q_fp8_words(g, shape->n_k);
    for (size_t k = 0, s = 0; k < shape->n_k; k += shape->step, s++) {
        size_t first = fp8q_fp8_words(g, k);
        struct segment segment = {
            .n_k = fp8q_min_size(shape->n_k - k, shape->step),
            .a = (const uint32_t *)a->packed + first * g->mr,
            .b = (const uint32_t *)b->packed + first * g->nr,
            .a_group = row_words * g->mr,
            .b_group = row_words * g->nr,
            .a_scale = a->scales + s * shape->n_rows,
            .b_scale = b->scales + s * shape->n_cols,
        };
        for (size_t i = 0; i < shape->n_rows; i += g->mr)
            for (size_t j = 0; j < shape->n_cols; j += g->nr)
                add_tile(g, &segment, shape, i, j, c, ldc);
    }
}

void fp8q_gemm_fp8(const struct fp8q_gemm *g, const struct fp8q_fp8_shape *shape,
                   const struct fp8q_fp8_operand *a, const struct fp8q_fp8_operand *b, float *c,
                   size_t ldc)
{
    uint64_t mode = fp8q_float_env_enter();
    gemm_fp8(g, shape, a, b, c, ldc);
    fp8q_float_env_leave(mode);
}
