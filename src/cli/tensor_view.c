/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_view.c - one tensor looked at.
 *
 * The map has a character for each block, by its amax on a logarithmic scale: what makes the scale of
 * the block.
 */
#include "cli/tensor_view.h"

#include <math.h>
#include <stdio.h>

#include "checkpoint/values.h"
#include "cli/format.h"
#include "cli/suggest.h"
#include "select/pattern.h"

enum { MAP_ROWS = 24, MAP_COLS = 64, WORST = 5 };

static const char shades[] = " .:-=+*#%@";

/* ---- the map --------------------------------------------------------------------------------- */

static char shade(const struct fp8q_amax_map *map, float amax)
{
    enum { DARKEST = sizeof(shades) - 2 };

    if (!(amax > 0))
        return shades[0];
    if (!isfinite(amax))
        return '!';

    /* All alike: none stands out.  */
    float span = log2f(map->high / map->low);
    float place = span > 0 ? log2f(amax / map->low) / span : 0;
    return shades[1 + (int)lroundf(place * (DARKEST - 1))];
}

static void print_map(struct cli *cli, const struct fp8q_statistics *s)
{
    struct fp8q_amax_map map = fp8q_amax_map_of(s, MAP_ROWS, MAP_COLS);
    char line[MAP_COLS + 1];

    if (map.high == 0)
        return;
    cli_print(cli, "amax of %llu x %llu blocks of 128x128, from '%c' %.3g to '%c' %.3g:\n",
              (unsigned long long)s->grid_rows, (unsigned long long)s->grid_cols, shades[1],
              (double)map.low, shade(&map, map.high), (double)map.high);

    for (uint64_t r = 0; r < map.rows; r++) {
        for (uint64_t c = 0; c < map.cols; c++)
            line[c] = shade(&map, fp8q_amax_map_cell(&map, r, c));
        line[map.cols] = '\0';
        cli_print(cli, "  |%s|\n", line);
    }
}

/* ---- the worst blocks ------------------------------------------------------------------------ */

static double small_share(const struct fp8q_block_statistics *b)
{
    return (double)b->n_small / (double)b->n_values;
}

/* The first of the blocks with the largest share of small values that come after @before; -1 if there is
 * none with any.  */
static int64_t next_worst(const struct fp8q_statistics *s, int64_t before)
{
    int64_t worst = -1;
    double limit = before < 0 ? HUGE_VAL : small_share(&s->blocks[before]), most = 0;

    for (int64_t i = 0; i < (int64_t)(s->grid_rows * s->grid_cols); i++) {
        double share = small_share(&s->blocks[i]);
        bool later = share < limit || (share == limit && i > before);
        if (later && share > most) {
            worst = i;
            most = share;
        }
    }
    return worst;
}

static void print_worst(struct cli *cli, const struct fp8q_statistics *s)
{
    int64_t at = -1;

    for (int n = 0; n < WORST && (at = next_worst(s, at)) >= 0; n++) {
        const struct fp8q_block_statistics *b = &s->blocks[at];
        if (n == 0)
            cli_print(cli, "blocks with the most values below the smallest normal one:\n");
        cli_print(cli, "  block [%lld, %lld]  amax %-10.4g %6.2f %%\n",
                  (long long)at / (long long)s->grid_cols, (long long)at % (long long)s->grid_cols,
                  (double)b->amax, 100 * small_share(b));
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void print_values(struct cli *cli, const struct fp8q_statistics *s)
{
    double n = (double)s->n_values;

    cli_print(cli, "values %.6g to %.6g, mean %.3g, rms %.4g\n", s->min, s->max, s->mean, s->rms);
    cli_print(cli, "zero %.2f %%, below the smallest normal FP8 value of its block %.2f %%",
              100 * (double)s->n_zeros / n, 100 * (double)s->n_small / n);
    if (s->n_nonfinite)
        cli_print(cli, ", NaN or infinite: %llu", (unsigned long long)s->n_nonfinite);
    cli_print(cli, "\n");
}

static void write_values(struct fp8q_jsonw *w, const struct fp8q_statistics *s)
{
    uint64_t n = s->grid_rows * s->grid_cols;

    fp8q_jsonw_number(w, "min", s->min);
    fp8q_jsonw_number(w, "max", s->max);
    fp8q_jsonw_number(w, "mean", s->mean);
    fp8q_jsonw_number(w, "rms", s->rms);
    fp8q_jsonw_uint(w, "zeros", s->n_zeros);
    fp8q_jsonw_uint(w, "small", s->n_small);
    fp8q_jsonw_uint(w, "nonfinite", s->n_nonfinite);

    fp8q_jsonw_open(w, "blocks", '{');
    fp8q_jsonw_uint(w, "rows", s->grid_rows);
    fp8q_jsonw_uint(w, "cols", s->grid_cols);
    fp8q_jsonw_open(w, "amax", '[');
    for (uint64_t i = 0; i < n; i++)
        fp8q_jsonw_number(w, NULL, (double)s->blocks[i].amax);
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_open(w, "small", '[');
    for (uint64_t i = 0; i < n; i++)
        fp8q_jsonw_uint(w, NULL, s->blocks[i].n_small);
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

/* What it is by its header and config.  */
static int view_kind(struct cli *cli, const struct fp8q_checkpoint *c, size_t index)
{
    const struct fp8q_tensor_info *t = fp8q_checkpoint_tensor(c, index);
    const char *scheme, *scale;
    struct fp8q_shown shown;
    char shape[256], bytes[32];

    FP8Q_TRY(fp8q_checkpoint_scheme(c, index, &scheme, &scale, &cli->error));
    cli_print(cli, "%s\n", fp8q_show(&shown, t->name));
    cli_print(cli, "%s %s, %s, %s, in ", fp8q_dtype_name(t->dtype),
              cli_shape(shape, sizeof(shape), t->shape, t->ndim), fp8q_show_bytes(bytes, t->bytes),
              t->role);
    cli_print(cli, "%s\n", fp8q_show(&shown, t->shard));
    if (scale)
        cli_print(cli, "scales: %s, one a %s\n", fp8q_show(&shown, scale), scheme);

    fp8q_jsonw_string(&cli->json, "name", t->name);
    cli_json_type(&cli->json, t->dtype, t->shape, t->ndim);
    fp8q_jsonw_uint(&cli->json, "bytes", t->bytes);
    fp8q_jsonw_string(&cli->json, "role", t->role);
    fp8q_jsonw_string(&cli->json, "shard", t->shard);
    fp8q_jsonw_string(&cli->json, "scheme", scheme);
    fp8q_jsonw_string(&cli->json, "scale", scale);
    return FP8Q_OK;
}

static int view(struct cli *cli, const struct fp8q_checkpoint *c, size_t index)
{
    struct fp8q_statistics s;

    FP8Q_TRY(fp8q_checkpoint_statistics(c, index, &cli->run, &s, &cli->error));
    int status = view_kind(cli, c, index);
    if (status == FP8Q_OK) {
        print_values(cli, &s);
        print_map(cli, &s);
        print_worst(cli, &s);
        write_values(&cli->json, &s);
    }
    fp8q_statistics_reset(&s);
    return status;
}

/* The tensor of that name, or the weight of the module of that name; SIZE_MAX if there is neither.  */
static size_t find(const struct fp8q_checkpoint *c, const char *name)
{
    char weight[4096];
    size_t index = fp8q_checkpoint_find(c, name);

    if (index != SIZE_MAX)
        return index;
    int n = snprintf(weight, sizeof(weight), "%s.weight", name);
    return n > 0 && (size_t)n < sizeof(weight) ? fp8q_checkpoint_find(c, weight) : SIZE_MAX;
}

/* A slip of a name, or else the first matrix with a component of that name: "q_proj".  */
static int none_of_that_name(struct cli *cli, const struct fp8q_checkpoint *c, const char *name)
{
    const struct fp8q_tensor_info *t;
    struct cli_suggestion near = {0};
    struct fp8q_shown shown, first;
    struct cli_hint hint;
    const char *has_it = NULL;

    for (size_t i = 0; (t = fp8q_checkpoint_tensor(c, i)); i++) {
        cli_suggest_offer(&near, name, t->name);
        if (!has_it && t->ndim >= 2 && fp8q_has_components(t->name, name))
            has_it = t->name;
    }
    if (!near.best && has_it)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "no-tensor",
                         "\"%s\" is the name of several tensors in part; name one whole, as \"%s\"",
                         fp8q_show(&shown, name), fp8q_show(&first, has_it));
    return fp8q_fail(&cli->error, FP8Q_E_ARG, "no-tensor",
                     "there is no tensor \"%s\", nor a weight of that module%s",
                     fp8q_show(&shown, name), cli_suggest_hint(&near, "", &hint));
}

int cli_view_tensor(struct cli *cli, const struct fp8q_checkpoint *c, const char *name)
{
    size_t index = find(c, name);
    if (index == SIZE_MAX)
        return none_of_that_name(cli, c, name);

    fp8q_jsonw_open(&cli->json, "tensor", '{');
    int status = view(cli, c, index);
    fp8q_jsonw_close(&cli->json, '}');
    return status;
}
