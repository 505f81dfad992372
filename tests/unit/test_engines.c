/* SPDX-License-Identifier: Apache-2.0
 *
 * test_engines.c - the tables of engines: complete, and the same in docs/reference/format.md.
 */
#include "support/support.h"

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/scales.h"
#include "engines/engines.h"

#define DOC FP8Q_TEST_DATA "/../../docs/reference/format.md"

static const enum fp8q_format formats[] = {FP8Q_FORMAT_FP8, FP8Q_FORMAT_COMPRESSED_TENSORS,
                                           FP8Q_FORMAT_MODELOPT};
enum { N_FORMATS = sizeof(formats) / sizeof(*formats) };

static const char *format_word(enum fp8q_format format)
{
    static const char *const words[] = {[FP8Q_FORMAT_FP8] = "fp8",
                                        [FP8Q_FORMAT_COMPRESSED_TENSORS] = "compressed-tensors",
                                        [FP8Q_FORMAT_MODELOPT] = "ModelOpt"};
    return words[format];
}

/* ---- the tables in words --------------------------------------------------------------------- */

static void print_readers(struct fp8q_text *t)
{
    fp8q_text_puts(t, "| reader | key | an entry E matches module M if |\n|---|---|---|\n");
    for (size_t i = 0; i < fp8q_n_readers; i++) {
        const struct fp8q_reader *r = &fp8q_readers[i];
        fp8q_text_printf(t, "| %s, %s | %s | %s |\n", r->name, format_word(r->format), r->key_text,
                         r->rule_text);
    }
}

static void print_scales(struct fp8q_text *t, const struct fp8q_reading *r)
{
    static const struct {
        enum fp8q_scaling scaling;
        const char *word;
    } kinds[] = {
        {FP8Q_SCALING_BLOCK, "block"}, {FP8Q_SCALING_ROW, "row"}, {FP8Q_SCALING_TENSOR, "tensor"}};
    const char *comma = "";

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const char *endings[] = {r->block_scale, r->other_scale, r->other_scale, r->group_scale};
        if (!(r->scalings & 1U << kinds[i].scaling))
            continue;
        fp8q_text_printf(t, "%s%s `weight%s`", comma, kinds[i].word, endings[i]);
        comma = ", ";
    }
}

static void print_demands(struct fp8q_text *t, unsigned demands)
{
    const char *comma = "";

    for (unsigned bit = 1; bit <= demands; bit <<= 1)
        if (demands & bit) {
            fp8q_text_printf(t, "%s%s", comma, fp8q_demand_text((enum fp8q_demand)bit));
            comma = "; ";
        }
}

static void print_readings(struct fp8q_text *t)
{
    fp8q_text_puts(t,
                   "| engine, format | scale for a | asks for | FP8 arithmetic on | elsewhere |\n"
                   "|---|---|---|---|---|\n");

    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++)
        for (size_t f = 0; f < N_FORMATS; f++) {
            const struct fp8q_reading *r = fp8q_reading_of((enum fp8q_engine)e, formats[f]);
            if (!r)
                continue;
            fp8q_text_printf(t, "| %s, %s | ", fp8q_engines[e].name, format_word(formats[f]));
            print_scales(t, r);
            fp8q_text_puts(t, " | ");
            print_demands(t, r->demands);
            fp8q_text_printf(t, " | %s%s%s | %s |\n", r->gpus, r->group_gpus ? "; MXFP8: " : "",
                             r->group_gpus ? r->group_gpus : "", r->other);
        }
}

static void print_versions(struct fp8q_text *t)
{
    fp8q_text_puts(t, "| engine | version | how it is known |\n|---|---|---|\n");
    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++)
        fp8q_text_printf(t, "| %s | %s | %s |\n", fp8q_engines[e].name, fp8q_engines[e].version,
                         fp8q_engines[e].is_run ? "its own loader runs in `tests/engines`"
                                                : "read in its source");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void document_has(const char *what, void (*print)(struct fp8q_text *t))
{
    struct fp8q_text table = {0};
    struct fp8q_error err = {0};
    char *doc = NULL;
    size_t len = 0;
    print(&table);
    assert_false(table.failed);
    assert_ok(fp8q_read_file(DOC, (uint64_t)1 << 20, &doc, &len, &err), &err);

    /* The whole table, with nothing behind its last row.  */
    const char *at = strstr(doc, table.data);
    if (!at || at[table.len] == '|') {
        printf("%s", table.data);
        fail_msg("docs/reference/format.md does not hold this table of %s", what);
    }
    free(doc);
    fp8q_text_reset(&table);
}

static void documents_say_what_the_tables_say(void **state)
{
    (void)state;
    document_has("engines", print_versions);
    document_has("readings", print_readings);
    document_has("readers", print_readers);
}

/* A format that an engine reads has a reader of its list, and the reverse; llama.cpp reads none.  */
static void readings_and_readers_belong_together(void **state)
{
    (void)state;

    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++)
        for (size_t f = 0; f < N_FORMATS; f++) {
            unsigned current = 0;
            for (size_t i = 0; i < fp8q_n_readers; i++)
                current += fp8q_readers[i].format == formats[f] && !fp8q_readers[i].is_older &&
                           (fp8q_readers[i].engines & 1U << e);
            bool reads = fp8q_reading_of((enum fp8q_engine)e, formats[f]) != NULL;
            assert_int_equal(current, reads && e != FP8Q_LLAMA_CPP);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_say_what_the_tables_say),
        cmocka_unit_test(readings_and_readers_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
