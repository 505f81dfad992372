/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.c - reads, checks and writes evidence files.
 */
#include "evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io.h"
#include "mem.h"

#define MAX_FILE_BYTES (64u << 20)
#define ABSENT ((double)NAN)

/* ---- time ---------------------------------------------------------------------------------- */

/* Days since 1970-01-01 of the proleptic Gregorian calendar; years begin in March, so that the leap
 * day is the last of its year.  */
static int64_t days_from_date(int64_t year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, of_era = y % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

void fp8q_time_format(int64_t seconds, char text[FP8Q_TIME_TEXT])
{
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    int year = 1970, month = 1;
    while (year < 9999 && days_from_date(year + 1, 1, 1) <= days)
        year++;
    while (month < 12 && days_from_date(year, month + 1, 1) <= days)
        month++;
    snprintf(text, FP8Q_TIME_TEXT, "%04d-%02d-%02dT%02d:%02d:%02dZ", year, month,
             (int)(days - days_from_date(year, month, 1)) + 1, (int)(rest / 3600),
             (int)(rest / 60 % 60), (int)(rest % 60));
}

/* @n digits at *@at, which moves on; -1 if there are other characters.  */
static int digits(const char **at, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static bool parse_offset(const char *at, int64_t *seconds_out)
{
    *seconds_out = 0;
    if ((*at == 'Z' || *at == 'z') && !at[1])
        return true;
    int sign = *at == '+' ? 1 : *at == '-' ? -1 : 0;
    at++;
    int hours = sign ? digits(&at, 2) : -1;
    if (hours < 0 || *at++ != ':')
        return false;
    int minutes = digits(&at, 2);
    *seconds_out = sign * (hours * 3600 + minutes * 60);
    return minutes >= 0 && minutes < 60 && hours < 24 && !*at;
}

bool fp8q_time_parse(const char *text, int64_t *seconds_out)
{
    static const char separators[] = "--T::";
    static const int widths[] = {4, 2, 2, 2, 2, 2};
    int f[6];
    for (int i = 0; i < 6; i++) {
        f[i] = digits(&text, widths[i]);
        if (f[i] < 0)
            return false;
        if (i < 5) {
            char c = *text++;
            if (c != separators[i] && !(i == 2 && (c == 't' || c == ' ')))
                return false;
        }
    }
    if (f[0] < 1970 || f[1] < 1 || f[1] > 12 || f[2] < 1 || f[2] > days_in_month(f[0], f[1]) ||
        f[3] > 23 || f[4] > 59 || f[5] > 60)
        return false;
    if (*text == '.') {
        text++;
        if (digits(&text, 1) < 0)
            return false;
        while (*text >= '0' && *text <= '9')
            text++;
    }
    int64_t offset;
    if (!parse_offset(text, &offset))
        return false;
    *seconds_out =
        days_from_date(f[0], f[1], f[2]) * 86400 + f[3] * 3600 + f[4] * 60 + f[5] - offset;
    return true;
}

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

static int read_samples(struct fp8q_eval_figures *f, const struct fp8q_json *list, const char *what,
                        struct fp8q_error *err)
{
    size_t count = fp8q_json_count(list);
    if (!list || fp8q_json_is_null(list))
        return FP8Q_OK;
    if (!fp8q_json_is_array(list))
        return bad_member(what, "results.samples", "an array", err);
    f->samples = fp8q_array(count, sizeof(*f->samples));
    if (!f->samples)
        return fp8q_fail_nomem(err);
    for (const struct fp8q_json *item = fp8q_json_first(list); item; item = fp8q_json_next(item)) {
        struct fp8q_eval_sample *s = &f->samples[f->n_samples++];
        if (!fp8q_json_uint(fp8q_json_get(item, "tokens"), &s->tokens) || s->tokens == 0)
            return bad_member(what, "results.samples[].tokens", "a positive integer", err);
        FP8Q_TRY(read_number(item, "kld", true, 0, 1e6, what, &s->kld, err));
        FP8Q_TRY(read_number(item, "floor", false, 0, 1e6, what, &s->floor_kld, err));
    }
    return FP8Q_OK;
}

static int read_eval(struct fp8q_eval_figures *f, const struct fp8q_json *results, const char *what,
                     struct fp8q_error *err)
{
    const struct {
        const char *member;
        bool required;
        double high;
        double *out;
    } numbers[] = {
        {"kld.mean", true, 1e6, &f->kld_mean},        {"kld.se", false, 1e6, &f->kld_se},
        {"kld.median", false, 1e6, &f->kld_median},   {"kld.p99", false, 1e6, &f->kld_p99},
        {"kld.max", false, 1e6, &f->kld_max},         {"top1", false, 1, &f->top1},
        {"ppl.source", false, 1e300, &f->ppl_source}, {"ppl.output", false, 1e300, &f->ppl_output},
        {"floor.kld", false, 1e6, &f->floor_kld},     {"weights.kld", false, 1e6, &f->weights_kld},
    };
    if (!fp8q_json_is_object(results))
        return bad_member(what, "results", "an object", err);
    const char *acts = fp8q_json_string(fp8q_json_get(results, "acts"), "");
    if (strcmp(acts, "dynamic") != 0 && strcmp(acts, "none") != 0)
        return bad_member(what, "results.acts", "\"dynamic\" or \"none\"", err);
    snprintf(f->acts, sizeof(f->acts), "%s", acts);
    if (!fp8q_json_uint(fp8q_json_get(results, "tokens"), &f->tokens) || f->tokens == 0)
        return bad_member(what, "results.tokens", "a positive integer", err);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        FP8Q_TRY(read_number(results, numbers[i].member, numbers[i].required, 0, numbers[i].high,
                             what, numbers[i].out, err));
    FP8Q_TRY(read_number(results, "delta_ln_ppl", false, -1e6, 1e6, what, &f->delta_ln_ppl, err));
    return read_samples(f, fp8q_json_get(results, "samples"), what, err);
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
    return e->has_eval ? read_eval(&e->eval, fp8q_json_get(root, "results"), what, err) : FP8Q_OK;
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

static void write_pair(struct fp8q_jsonw *w, const char *key, const char *name, double value)
{
    if (isnan(value))
        return;
    fp8q_jsonw_open(w, key, '{');
    fp8q_jsonw_number(w, name, value);
    fp8q_jsonw_close(w, '}');
}

static void write_eval(struct fp8q_jsonw *w, const struct fp8q_eval_figures *f)
{
    fp8q_jsonw_open(w, "results", '{');
    fp8q_jsonw_string(w, "acts", f->acts);
    fp8q_jsonw_uint(w, "tokens", f->tokens);
    fp8q_jsonw_open(w, "kld", '{');
    fp8q_jsonw_number(w, "mean", f->kld_mean);
    fp8q_jsonw_number(w, "se", f->kld_se);
    fp8q_jsonw_number(w, "median", f->kld_median);
    fp8q_jsonw_number(w, "p99", f->kld_p99);
    fp8q_jsonw_number(w, "max", f->kld_max);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_number(w, "top1", f->top1);
    fp8q_jsonw_open(w, "ppl", '{');
    fp8q_jsonw_number(w, "source", f->ppl_source);
    fp8q_jsonw_number(w, "output", f->ppl_output);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_number(w, "delta_ln_ppl", f->delta_ln_ppl);
    write_pair(w, "floor", "kld", f->floor_kld);
    write_pair(w, "weights", "kld", f->weights_kld);
    fp8q_jsonw_open(w, "samples", '[');
    for (size_t i = 0; i < f->n_samples; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_uint(w, "tokens", f->samples[i].tokens);
        fp8q_jsonw_number(w, "kld", f->samples[i].kld);
        if (!isnan(f->samples[i].floor_kld))
            fp8q_jsonw_number(w, "floor", f->samples[i].floor_kld);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
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
    if (evidence->has_eval)
        write_eval(w, &evidence->eval);
}
