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

/* A number in [low, high]; absent or null gives NAN unless @required.  */
static int read_number(const struct fp8q_json *object, const char *member, bool required,
                       double low, double high, const char *what, double *out,
                       struct fp8q_error *err)
{
    char expected[80];
    const struct fp8q_json *value = fp8q_json_path(object, member);
    *out = ABSENT;
    if (!required && (!value || fp8q_json_is_null(value)))
        return FP8Q_OK;
    *out = fp8q_json_number(value, ABSENT);
    if (*out >= low && *out <= high)
        return FP8Q_OK;
    snprintf(expected, sizeof(expected), "a number from %g to %g", low, high);
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
        FP8Q_TRY(read_number(item, "kld", s->tokens > 0, 0, 1e6, what, &s->kld, err));
    }
    return FP8Q_OK;
}

/* Row @name of "rows": {"activations-only": {"kld": {"mean": 0.003}}}.  */
static int read_row(const struct fp8q_json *root, const char *name, const char *what, double *out,
                    struct fp8q_error *err)
{
    const struct fp8q_json *row = fp8q_json_get(fp8q_json_get(root, "rows"), name);
    return read_number(row, "kld.mean", row != NULL, 0, 1e6, what, out, err);
}

static int read_eval(struct fp8q_evidence_eval *f, const struct fp8q_json *root, const char *what,
                     struct fp8q_error *err)
{
    double by_token;
    const char *acts = fp8q_json_string(fp8q_json_get(root, "acts"), "");
    if (!*acts || strlen(acts) >= sizeof(f->acts))
        return bad_member(what, "acts", "a short word such as \"dynamic\"", err);
    snprintf(f->acts, sizeof(f->acts), "%s", acts);
    if (!fp8q_json_uint(fp8q_json_get(root, "tokens"), &f->tokens) || f->tokens == 0)
        return bad_member(what, "tokens", "a positive integer", err);
    FP8Q_TRY(read_number(root, "kld.mean", true, 0, 1e6, what, &f->kld, err));
    FP8Q_TRY(read_number(root, "kld.se", false, 0, 1e6, what, &f->kld_se, err));
    FP8Q_TRY(read_number(root, "kld.se_by_token", false, 0, 1e6, what, &by_token, err));
    if (isnan(f->kld_se))
        f->kld_se = by_token;
    FP8Q_TRY(read_number(root, "top1", false, 0, 1, what, &f->top1, err));
    FP8Q_TRY(read_number(root, "ppl.source", false, 0, 1e300, what, &f->ppl_source, err));
    FP8Q_TRY(read_number(root, "ppl.output", false, 0, 1e300, what, &f->ppl_output, err));
    FP8Q_TRY(read_number(root, "ppl.dln", false, -1e6, 1e6, what, &f->delta_ln_ppl, err));
    FP8Q_TRY(read_row(root, "activations-only", what, &f->floor_kld, err));
    FP8Q_TRY(read_row(root, "weights-only", what, &f->weights_kld, err));
    FP8Q_TRY(read_row(root, "requantized-ue8m0", what, &f->requant_kld, err));
    return read_samples(f, fp8q_json_get(root, "samples"), what, err);
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
    if (!e->kind)
        return bad_member(what, "kind", "a string", err);
    if (!fp8q_time_parse(fp8q_json_string(fp8q_json_get(root, "created"), ""), &e->created))
        return bad_member(what, "created", "a time as in RFC 3339", err);
    FP8Q_TRY(read_fingerprint(root, "fingerprints.source", what, &e->source, err));
    FP8Q_TRY(read_fingerprint(root, "fingerprints.output", what, &e->output, err));
    FP8Q_TRY(read_fingerprint(root, "fingerprints.inputs", what, &e->inputs, err));
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
    free(evidence->eval.samples);
    *evidence = (struct fp8q_evidence){0};
}

/* ---- writing ------------------------------------------------------------------------------- */

static void write_fingerprint(struct fp8q_jsonw *w, const char *key, struct fp8q_fingerprint f)
{
    char text[16];
    snprintf(text, sizeof(text), "%08x", (unsigned)f.crc32);
    fp8q_jsonw_string(w, key, f.known ? text : NULL);
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
    fp8q_jsonw_open(w, "fingerprints", '{');
    write_fingerprint(w, "source", evidence->source);
    write_fingerprint(w, "output", evidence->output);
    write_fingerprint(w, "inputs", evidence->inputs);
    fp8q_jsonw_close(w, '}');
}
