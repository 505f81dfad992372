/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.c - reads, checks and writes evidence files.
 */
#include "gate/evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/date.h"
#include "base/file.h"
#include "base/mem.h"

#define MAX_FILE_BYTES (64u << 20)
#define ABSENT ((double)NAN)

/* ---- reading ------------------------------------------------------------------------------- */

static int bad_member(const char *what, const char *member, const char *expected,
                      struct fp8q_error *err)
{
    return fp8q_fail(err, FP8Q_E_FORMAT, "evidence-format", "%s: \"%s\": expected %s", what, member,
                     expected);
}

struct range {
    double low, high;
};
static const struct range nats = {0, 1e6}, share = {0, 1}, change = {-1e6, 1e6},
                          perplexity = {0, 1e300};

/* A number in @range; absent or null gives NAN unless @required.  */
static int read_number(const struct fp8q_json *object, const char *member, bool required,
                       struct range range, const char *what, double *out, struct fp8q_error *err)
{
    char expected[80];
    const struct fp8q_json *value = fp8q_json_path(object, member);

    *out = ABSENT;
    if (!required && (!value || fp8q_json_is_null(value)))
        return FP8Q_OK;

    /* What is no number becomes NaN, which is in no range.  */
    *out = fp8q_json_number(value, ABSENT);
    if (*out >= range.low && *out <= range.high)
        return FP8Q_OK;
    snprintf(expected, sizeof(expected), "a number from %g to %g", range.low, range.high);
    return bad_member(what, member, expected, err);
}

/* Eight hexadecimal digits; absent or null: not known.  */
static int read_fingerprint(const struct fp8q_json *root, const char *member, const char *what,
                            struct fp8q_fingerprint *out, struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_path(root, member);
    const char *text = fp8q_json_string(value, NULL);

    *out = (struct fp8q_fingerprint){0};
    if (!value || fp8q_json_is_null(value))
        return FP8Q_OK;
    if (!text || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return bad_member(what, member, "eight hexadecimal digits", err);
    *out = (struct fp8q_fingerprint){true, (uint32_t)strtoul(text, NULL, 16)};
    return FP8Q_OK;
}

static int copy_string(const struct fp8q_json *value, char **out, struct fp8q_error *err)
{
    const char *text = fp8q_json_string(value, NULL);
    *out = text ? strdup(text) : NULL;
    return text && !*out ? fp8q_fail_nomem(err) : FP8Q_OK;
}

/* A name of a part, absent: "".  */
static int read_name(const struct fp8q_json *object, const char *member, const char *what,
                     char out[FP8Q_EVIDENCE_NAME], struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_get(object, member);
    const char *text = fp8q_json_string(value, "");
    if ((value && !*text) || strlen(text) >= FP8Q_EVIDENCE_NAME)
        return bad_member(what, member, "a name of 1 to 63 bytes", err);
    snprintf(out, FP8Q_EVIDENCE_NAME, "%s", text);
    return FP8Q_OK;
}

static int read_samples(struct fp8q_evidence_eval *f, const struct fp8q_json *list,
                        const char *what, struct fp8q_error *err)
{
    if (!list || fp8q_json_is_null(list))
        return FP8Q_OK;
    if (!fp8q_json_is_array(list))
        return bad_member(what, "samples", "an array", err);

    f->samples = fp8q_array(fp8q_json_count(list), sizeof(*f->samples));
    if (!f->samples)
        return fp8q_fail_nomem(err);
    for (const struct fp8q_json *item = fp8q_json_first(list); item; item = fp8q_json_next(item)) {
        struct fp8q_evidence_sample *s = &f->samples[f->n_samples++];

        if (!fp8q_json_uint(fp8q_json_get(item, "tokens"), &s->tokens))
            return bad_member(what, "samples[].tokens", "an integer", err);
        /* A sample of which nothing was scored has no KLD: null is right there.  */
        FP8Q_TRY(read_number(item, "kld", s->tokens > 0, nats, what, &s->kld, err));
        FP8Q_TRY(read_number(item, "top1", false, share, what, &s->top1, err));
        FP8Q_TRY(read_name(item, "category", what, s->category, err));
        f->n_scored += s->tokens > 0;
    }
    return FP8Q_OK;
}

/* Figures of @object, which is the evidence itself or one of its "rows"; NULL: all NAN.  */
static int read_row(const struct fp8q_json *object, bool required, const char *what,
                    struct fp8q_evidence_row *row, struct fp8q_error *err)
{
    FP8Q_TRY(read_number(object, "kld.mean", required, nats, what, &row->kld, err));
    FP8Q_TRY(read_number(object, "kld.se", false, nats, what, &row->kld_se, err));
    FP8Q_TRY(read_number(object, "top1", false, share, what, &row->top1, err));
    FP8Q_TRY(read_number(object, "top1_se", false, share, what, &row->top1_se, err));
    FP8Q_TRY(read_number(object, "ppl.dln", false, change, what, &row->dln, err));
    return read_number(object, "ppl.dln_se", false, nats, what, &row->dln_se, err);
}

/* ---- contradictions ------------------------------------------------------------------------ */

/* Figures are written with all their digits, so that what differs was edited, or is of two runs.  */
static bool differ(double stated, double found)
{
    return !isnan(stated) && !isnan(found) &&
           fabs(stated - found) > 1e-6 * fmax(fabs(stated), fabs(found)) + 1e-12;
}

/* Sums over the scored samples, and the error of the mean KLD with samples as units.  */
struct sample_sums {
    uint64_t tokens;
    double kld, top1, kld_se, top1_se;
};

static struct sample_sums add_samples(const struct fp8q_evidence_eval *f)
{
    struct sample_sums sums = {0};
    double kld = 0, top1 = 0, n = (double)f->n_scored, total = 0;

    for (size_t i = 0; i < f->n_samples; i++) {
        const struct fp8q_evidence_sample *s = &f->samples[i];
        if (s->tokens == 0)
            continue;
        total += (double)s->tokens;
        sums.tokens += s->tokens;
        sums.kld += s->kld * (double)s->tokens;
        sums.top1 += s->top1 * (double)s->tokens;
    }

    /* The same error as eval's (fp8q_ratio_se): tokens weigh, samples are the units.  */
    sums.kld /= total;
    sums.top1 /= total;
    for (size_t i = 0; i < f->n_samples; i++)
        if (f->samples[i].tokens > 0) {
            double tokens = (double)f->samples[i].tokens;
            kld += pow((f->samples[i].kld - sums.kld) * tokens, 2);
            top1 += pow((f->samples[i].top1 - sums.top1) * tokens, 2);
        }
    sums.kld_se = f->n_scored > 1 ? sqrt(kld * n / (n - 1)) / total : ABSENT;
    sums.top1_se = f->n_scored > 1 ? sqrt(top1 * n / (n - 1)) / total : ABSENT;
    return sums;
}

static int contradiction(const char *what, const char *member, double stated, double found,
                         struct fp8q_error *err)
{
    return fp8q_fail(err, FP8Q_E_FORMAT, "evidence-contradiction",
                     "%s: \"%s\" is %.17g, but the samples of the file give %.17g", what, member,
                     stated, found);
}

/* Figures are those of the samples; the error of the mean is taken from them.  */
static int check_samples(struct fp8q_evidence_eval *f, const char *what, struct fp8q_error *err)
{
    if (f->n_samples == 0) {
        f->output.kld_se = f->output.top1_se = f->output.dln_se = ABSENT; /* of how many units? */
        return FP8Q_OK;
    }

    const struct sample_sums sums = add_samples(f);
    struct fp8q_evidence_row *row = &f->output;
    /* Exact where it can be; figures went through division and text.  */
    if (sums.tokens != f->tokens)
        return contradiction(what, "tokens", (double)f->tokens, (double)sums.tokens, err);
    if (differ(row->kld, sums.kld))
        return contradiction(what, "kld.mean", row->kld, sums.kld, err);
    if (differ(row->kld_se, sums.kld_se))
        return contradiction(what, "kld.se", row->kld_se, sums.kld_se, err);
    if (differ(row->top1, sums.top1))
        return contradiction(what, "top1", row->top1, sums.top1, err);

    /* A file that states no error has one all the same.  */
    row->kld_se = sums.kld_se;
    row->top1_se = sums.top1_se;
    return FP8Q_OK;
}

enum { MAX_CATEGORIES = 255 }; /* as eval has at most */

/* ---- parts --------------------------------------------------------------------------------- */

/* Figures of a part are means of the tokens that make up the whole, so they add up to it.  */
static int read_modalities(struct fp8q_evidence_eval *f, const struct fp8q_json *list,
                           const char *what, struct fp8q_error *err)
{
    double sum = 0, tokens = 0;
    f->modalities.items = fp8q_array(fp8q_json_count(list), sizeof(*f->modalities.items));
    if (!f->modalities.items)
        return fp8q_fail_nomem(err);

    for (const struct fp8q_json *item = fp8q_json_first(list); item; item = fp8q_json_next(item)) {
        struct fp8q_evidence_part *p = &f->modalities.items[f->modalities.n++];
        FP8Q_TRY(read_name(item, "name", what, p->name, err));
        if (!fp8q_json_uint(fp8q_json_get(item, "tokens"), &p->tokens) || p->tokens == 0 ||
            !fp8q_json_uint(fp8q_json_get(item, "samples"), &p->samples))
            return bad_member(what, "modalities[]", "numbers of tokens and samples", err);
        FP8Q_TRY(read_number(item, "kld", true, nats, what, &p->kld, err));
        FP8Q_TRY(read_number(item, "kld_se", false, nats, what, &p->kld_se, err));
        sum += p->kld * (double)p->tokens;
        tokens += (double)p->tokens;
    }

    if (f->modalities.n > 0 && (tokens != (double)f->tokens || differ(f->output.kld, sum / tokens)))
        return contradiction(what, "modalities", f->output.kld, sum / tokens, err);
    return FP8Q_OK;
}

/* The part of @name, which is new if no other has it.  */
static struct fp8q_evidence_part *part_of(struct fp8q_evidence_parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->n; i++)
        if (strcmp(parts->items[i].name, name) == 0)
            return &parts->items[i];
    struct fp8q_evidence_part *p = &parts->items[parts->n++];
    snprintf(p->name, sizeof(p->name), "%s", name);
    return p;
}

/* Categories are taken from the samples themselves, with the same error as eval's.  */
static int add_categories(struct fp8q_evidence_eval *f, const char *what, struct fp8q_error *err)
{
    struct fp8q_evidence_parts *parts = &f->categories;
    parts->items = fp8q_array(f->n_samples, sizeof(*parts->items));
    if (!parts->items)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < f->n_samples; i++) {
        const struct fp8q_evidence_sample *s = &f->samples[i];
        if (!s->category[0] || s->tokens == 0)
            continue;
        struct fp8q_evidence_part *p = part_of(parts, s->category);
        if (parts->n > MAX_CATEGORIES)
            return bad_member(what, "samples[].category", "at most 255 categories", err);
        p->tokens += s->tokens;
        p->samples++;
        p->kld += s->kld * (double)s->tokens;
    }
    for (size_t k = 0; k < parts->n; k++)
        parts->items[k].kld /= (double)parts->items[k].tokens;

    /* Squares of the residuals, for which the means had to be known.  */
    for (size_t i = 0; i < f->n_samples; i++) {
        const struct fp8q_evidence_sample *s = &f->samples[i];
        if (!s->category[0] || s->tokens == 0)
            continue;
        struct fp8q_evidence_part *p = part_of(parts, s->category);
        p->kld_se += pow((s->kld - p->kld) * (double)s->tokens, 2);
    }
    for (size_t k = 0; k < parts->n; k++) {
        struct fp8q_evidence_part *p = &parts->items[k];
        double n = (double)p->samples;
        p->kld_se = n > 1 ? sqrt(p->kld_se * n / (n - 1)) / (double)p->tokens : ABSENT;
    }
    return FP8Q_OK;
}

/* What an action expert reads of a backbone: the worst layer.  */
static int read_states(struct fp8q_evidence_eval *f, const struct fp8q_json *root, const char *what,
                       struct fp8q_error *err)
{
    static const char *const lists[] = {"key_error", "value_error"};
    FP8Q_TRY(read_number(root, "final_error", false, nats, what, &f->state_error, err));

    for (size_t i = 0; i < 2; i++)
        for (const struct fp8q_json *x = fp8q_json_first(fp8q_json_get(root, lists[i])); x;
             x = fp8q_json_next(x)) {
            double error = fp8q_json_number(x, ABSENT);
            if (!(error >= nats.low && error <= nats.high))
                return bad_member(what, lists[i], "numbers that are not negative", err);
            f->state_error = fmax(f->state_error, error);
        }
    return FP8Q_OK;
}

static int check_perplexity(const struct fp8q_json *root, const char *what, double dln,
                            struct fp8q_error *err)
{
    double source, output;
    FP8Q_TRY(read_number(root, "ppl.source", false, perplexity, what, &source, err));
    FP8Q_TRY(read_number(root, "ppl.output", false, perplexity, what, &output, err));
    if (source > 0 && output > 0 && differ(dln, log(output / source)))
        return fp8q_fail(err, FP8Q_E_FORMAT, "evidence-contradiction",
                         "%s: \"ppl.dln\" is %.17g, but \"ppl.source\" and \"ppl.output\" give "
                         "%.17g",
                         what, dln, log(output / source));
    return FP8Q_OK;
}

/* ---- the whole file ------------------------------------------------------------------------ */

static int read_eval(struct fp8q_evidence_eval *f, const struct fp8q_json *root, const char *what,
                     struct fp8q_error *err)
{
    const struct fp8q_json *rows = fp8q_json_get(root, "rows");
    const struct fp8q_json *floor = fp8q_json_get(rows, "activations-only");
    const struct fp8q_json *requant = fp8q_json_get(rows, "requantized-ue8m0");
    const char *acts = fp8q_json_string(fp8q_json_get(root, "acts"), "");

    if (!*acts || strlen(acts) >= sizeof(f->acts))
        return bad_member(what, "acts", "a short word such as \"served\"", err);
    snprintf(f->acts, sizeof(f->acts), "%s", acts);
    FP8Q_TRY(read_states(f, root, what, err));
    /* What a policy's backbone sees predicts nothing: states are all that there is.  */
    if (!fp8q_json_uint(fp8q_json_get(root, "tokens"), &f->tokens) ||
        (f->tokens == 0 && isnan(f->state_error)))
        return bad_member(what, "tokens", "a positive integer", err);

    FP8Q_TRY(read_number(root, "static.clipped", false, share, what, &f->clipped, err));
    FP8Q_TRY(read_number(root, "static.unused", false, nats, what, &f->unused, err));
    FP8Q_TRY(read_row(root, f->tokens > 0, what, &f->output, err));
    FP8Q_TRY(read_row(floor, floor != NULL, what, &f->floor, err));
    FP8Q_TRY(read_row(requant, requant != NULL, what, &f->requant, err));
    FP8Q_TRY(read_samples(f, fp8q_json_get(root, "samples"), what, err));

    /* Only now, since it replaces the errors that the file states.  */
    FP8Q_TRY(check_samples(f, what, err));
    FP8Q_TRY(add_categories(f, what, err));
    FP8Q_TRY(read_modalities(f, fp8q_json_get(root, "modalities"), what, err));
    return check_perplexity(root, what, f->output.dln, err);
}

static int read_root(struct fp8q_evidence *e, const struct fp8q_json *root, const char *what,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *schema = fp8q_json_string(fp8q_json_get(root, "schema"), "");
    if (strcmp(schema, FP8Q_EVIDENCE_SCHEMA) != 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "evidence-schema",
                         "%s: expected \"schema\": \"" FP8Q_EVIDENCE_SCHEMA "\", found \"%s\"",
                         what, fp8q_show(&shown, schema));

    FP8Q_TRY(copy_string(fp8q_json_get(root, "kind"), &e->kind, err));
    FP8Q_TRY(copy_string(fp8q_json_get(root, "stack"), &e->stack, err));
    FP8Q_TRY(copy_string(fp8q_json_get(root, "tool"), &e->tool, err));
    FP8Q_TRY(copy_string(fp8q_json_get(root, "rounding"), &e->rounding, err));
    FP8Q_TRY(copy_string(fp8q_json_get(root, "config_differences"), &e->config_differences, err));
    if (!e->kind)
        return bad_member(what, "kind", "a string", err);
    if (!fp8q_time_parse(fp8q_json_string(fp8q_json_get(root, "created"), ""), &e->created))
        return bad_member(what, "created", "a time as in RFC 3339", err);

    FP8Q_TRY(read_fingerprint(root, "fingerprints.source", what, &e->source, err));
    FP8Q_TRY(read_fingerprint(root, "fingerprints.output", what, &e->output, err));
    FP8Q_TRY(read_fingerprint(root, "fingerprints.inputs", what, &e->inputs, err));
    FP8Q_TRY(read_fingerprint(root, "fingerprints.config", what, &e->config, err));
    /* Any other kind is still read, so that the gate can say why it does not count.  */
    e->has_eval = strcmp(e->kind, "eval") == 0;
    return e->has_eval ? read_eval(&e->eval, root, what, err) : FP8Q_OK;
}

int fp8q_evidence_parse(const char *text, size_t len, const char *what,
                        struct fp8q_evidence *evidence_out, struct fp8q_error *err)
{
    struct fp8q_json *root;
    *evidence_out = (struct fp8q_evidence){0};
    FP8Q_TRY(fp8q_json_parse(text, len, 0, what, &root, err));

    evidence_out->path = strdup(what);
    int status =
        evidence_out->path ? read_root(evidence_out, root, what, err) : fp8q_fail_nomem(err);
    fp8q_json_free(root);

    if (status != FP8Q_OK)
        fp8q_evidence_reset(evidence_out);
    return status;
}

int fp8q_evidence_read(const char *path, struct fp8q_evidence *evidence_out, struct fp8q_error *err)
{
    char *text;
    size_t len;
    *evidence_out = (struct fp8q_evidence){0};
    FP8Q_TRY(fp8q_read_file(path, MAX_FILE_BYTES, &text, &len, err));

    int status = fp8q_evidence_parse(text, len, path, evidence_out, err);
    free(text);
    return status;
}

void fp8q_evidence_reset(struct fp8q_evidence *evidence)
{
    free(evidence->path);
    free(evidence->kind);
    free(evidence->stack);
    free(evidence->tool);
    free(evidence->rounding);
    free(evidence->config_differences);
    free(evidence->eval.samples);
    free(evidence->eval.modalities.items);
    free(evidence->eval.categories.items);
    *evidence = (struct fp8q_evidence){0};
}

/* ---- writing ------------------------------------------------------------------------------- */

static void write_fingerprint(struct fp8q_jsonw *w, const char *key, struct fp8q_fingerprint f)
{
    char text[16];
    snprintf(text, sizeof(text), "%08x", (unsigned)f.crc32);
    fp8q_jsonw_string(w, key, f.known ? text : NULL);
}

void fp8q_evidence_write_subject(struct fp8q_jsonw *w, const struct fp8q_evidence *evidence)
{
    fp8q_jsonw_open(w, "fingerprints", '{');
    write_fingerprint(w, "source", evidence->source);
    write_fingerprint(w, "output", evidence->output);
    write_fingerprint(w, "config", evidence->config);
    write_fingerprint(w, "inputs", evidence->inputs);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_string(w, "rounding", evidence->rounding);
}

void fp8q_evidence_write(struct fp8q_jsonw *w, const struct fp8q_evidence *evidence)
{
    char created[FP8Q_TIME_TEXT];
    fp8q_time_format(evidence->created, created);
    fp8q_jsonw_string(w, "schema", FP8Q_EVIDENCE_SCHEMA);
    fp8q_jsonw_string(w, "kind", evidence->kind);
    fp8q_jsonw_string(w, "created", created);
    fp8q_jsonw_string(w, "tool", evidence->tool);
    fp8q_jsonw_string(w, "stack", evidence->stack);
    fp8q_evidence_write_subject(w, evidence);
}
