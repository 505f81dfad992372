/* SPDX-License-Identifier: Apache-2.0
 *
 * families.c - finds the rows of a config, and matches module names against them.
 */
#include "select/families.h"

#include <string.h>

/* Components that a decoder's root may be made of.  A root needs a word that only a language model
 * has, or nothing but `model`: a bare `backbone` may as well be that of a vision model.  */
#define LANGUAGE_WORDS                                                                             \
    "language_model text_model text_decoder language_decoder language_backbone language llm "      \
    "llm_model llm_backbone lm thinker"
#define MODEL_WORDS "model base_model"
#define CARRIER_WORDS "backbone vlm eagle_model"

/* In a component anywhere, and only as a whole word of one ("vit", "vit_model", "image_vit").  */
#define TOWER_PARTS                                                                                \
    "vision visual image video audio speech acoustic codec encoder tower pixel siglip dino "       \
    "hubert wav2vec vocoder conformer perceiver qformer patch"
#define TOWER_WORDS "vit sam clip wav mimi vae vq mel"

static bool list_has_n(const char *list, const char *word, size_t n)
{
    for (; *list; list += strspn(list, " ")) {
        size_t len = strcspn(list, " ");
        if (len == n && memcmp(list, word, n) == 0)
            return true;
        list += len;
    }

    return false;
}

static bool list_has(const char *list, const char *word)
{
    return word && list_has_n(list, word, strlen(word));
}

/* ---- the rows of a config -------------------------------------------------------------------- */

const struct fp8q_json *fp8q_language_config(const struct fp8q_json *config)
{
    static const char *const places[] = {
        "text_config",    "llm_config", "language_config", "thinker_config.text_config",
        "thinker_config", "llm_cfg",    "decoder_config"};

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        const struct fp8q_json *nested = fp8q_json_path(config, places[i]);
        if (fp8q_json_is_object(nested))
            return nested;
    }

    return config;
}

static const struct fp8q_language_model *language_of(const char *type)
{
    for (const struct fp8q_language_model *l = fp8q_language_models; l->name; l++)
        if (list_has(l->model_types, type))
            return l;

    return NULL;
}

static const struct fp8q_wrapper *wrapper_of(const char *type)
{
    for (const struct fp8q_wrapper *w = fp8q_wrappers; w->name; w++)
        if (list_has(w->model_types, type))
            return w;

    return NULL;
}

/* What the config says of itself: model_type, or the `type` of a LeRobot policy.  */
static void read_types(const struct fp8q_json *config, struct fp8q_family *f)
{
    const struct fp8q_json *language = fp8q_language_config(config);
    const char *policy = fp8q_json_string(fp8q_json_get(config, "type"), NULL);

    f->model_type = fp8q_json_string(fp8q_json_get(config, "model_type"), NULL);

    /* Policies of LeRobot have `type` where models have `model_type`.  */
    f->lerobot = policy && !f->model_type;
    if (f->lerobot)
        f->model_type = policy;

    /* A text-only config is its own language model.  */
    if (language != config)
        f->language_type = fp8q_json_string(fp8q_json_get(language, "model_type"), NULL);
    if (!f->model_type)
        f->model_type = f->language_type;
}

struct fp8q_family fp8q_family_of(const struct fp8q_json *config)
{
    struct fp8q_family f = {.name = NULL};
    read_types(config, &f);
    const struct fp8q_wrapper *wrapper = wrapper_of(f.model_type);
    const struct fp8q_language_model *language = language_of(f.language_type);

    /* A wrapper that names no language model has its own; a language model stands for itself.  */
    f.language_known = language || !f.language_type;
    if (!f.language_type)
        language = language_of(wrapper ? wrapper->language : f.model_type);
    if (!wrapper && !language)
        language = language_of(f.model_type);
    f.known = wrapper || language_of(f.model_type);
    f.name = wrapper ? wrapper->name : language ? language->name : fp8q_general_wrapper.name;
    if (!f.known)
        f.name = fp8q_general_wrapper.name;
    if (!wrapper)
        wrapper = &fp8q_general_wrapper;
    if (!language)
        language = &fp8q_general_language;

    /* The wrapper says where, the language model what.  */
    f.language = language->name;
    f.decoders = wrapper->decoders;
    f.more_decoders = language->decoders;
    f.linears = language->linears;
    f.experts = language->experts;
    f.vision = wrapper->vision;
    f.projector = wrapper->projector;
    f.action = wrapper->action;
    f.note = wrapper->note ? wrapper->note : language->note;
    return f;
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* Length of "layers.N." at @s, or 0.  */
static size_t layer_prefix(const char *s)
{
    if (strncmp(s, "layers.", 7) != 0)
        return 0;
    size_t digits = strspn(s + 7, "0123456789");

    return digits && s[7 + digits] == '.' ? 7 + digits + 1 : 0;
}

/* Whether the @len bytes before "layers." are made of a decoder's words alone.  */
static bool is_general_root(const char *name, size_t len)
{
    bool only_model = true, has_language = false;

    for (size_t at = 0; at < len;) {
        size_t n = strcspn(name + at, ".");

        /* One strange component is enough: `draft.model`, `talker.model`.  */
        bool is_language = list_has_n(LANGUAGE_WORDS, name + at, n);
        bool is_model = list_has_n(MODEL_WORDS, name + at, n);
        if (!is_language && !is_model && !list_has_n(CARRIER_WORDS, name + at, n))
            return false;
        has_language |= is_language;
        only_model &= is_model;
        at += n + 1;
    }

    return has_language || only_model;
}

/* The last `layers.N.`: nothing behind it may be another stack.  *@root_out: bytes before it.  */
static size_t last_layer(const char *module, size_t *root_out)
{
    size_t end = 0;

    for (const char *at = module; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
        size_t n = layer_prefix(at);
        if (n) {
            *root_out = (size_t)(at - module);
            end = *root_out + n;
        }
    }

    return end;
}

/* The same right under the root that is the first @len bytes of @root; "." is no root at all.  */
static size_t layer_of_root(const char *root, size_t len, const char *module)
{
    if (len == 1 && *root == '.')
        return layer_prefix(module);
    if (strncmp(module, root, len) != 0 || module[len] != '.')
        return 0;

    /* Layers of other names belong to the root: `transformer.h`, which a number follows.  */
    const char *rest = module + len + 1;
    size_t n = layer_prefix(rest), digits = strspn(rest, "0123456789");
    if (!n && digits && rest[digits] == '.')
        n = digits + 1;

    return n ? len + 1 + n : 0;
}

/* The same under one of the roots of @list.  */
static size_t layer_under(const char *list, const char *module)
{
    for (const char *root = list; root && *root; root += strspn(root, " ")) {
        size_t len = strcspn(root, " "), n = layer_of_root(root, len, module);
        if (n)
            return n;
        root += len;
    }

    return 0;
}

size_t fp8q_family_layer(const struct fp8q_family *family, const char *module)
{
    size_t layer = layer_under(family->more_decoders, module), root;
    if (layer)
        return layer;
    if (family->decoders)
        return layer_under(family->decoders, module);

    layer = last_layer(module, &root);
    return layer && is_general_root(module, root) ? layer : 0;
}

/* @word is the component, or one of its parts between underscores.  */
static bool is_word_of(const char *component, size_t len, const char *list)
{
    for (size_t at = 0; at < len;) {
        size_t n = strcspn(component + at, "_.");
        if (at + n > len)
            n = len - at;
        if (list_has_n(list, component + at, n))
            return true;
        at += n + 1;
    }

    return false;
}

static bool contains_any(const char *text, size_t len, const char *list)
{
    for (; *list; list += strspn(list, " ")) {
        size_t n = strcspn(list, " ");
        if (n <= len && memmem(text, len, list, n))
            return true;
        list += n;
    }

    return false;
}

bool fp8q_names_tower(const char *name, size_t len)
{
    return contains_any(name, len, TOWER_PARTS) || is_word_of(name, len, TOWER_WORDS);
}

/* ---- linears --------------------------------------------------------------------------------- */

/* Steps over the digits of an expert's number; false if there are none.  */
static bool match_number(const char **name)
{
    size_t digits = strspn(*name, "0123456789");
    *name += digits;
    return digits > 0;
}

/* Whether @name is one of the members "(a b c)" that begin at @list.  */
static bool match_member(const char *list, const char *name)
{
    for (list++; *list != ')'; list += strspn(list, " ")) {
        size_t len = strcspn(list, " )");
        if (strncmp(name, list, len) == 0 && name[len] == '\0')
            return true;
        list += len;
    }

    return false;
}

/* Matches @name against one entry "head.(a b c)", "head.x" or "experts.E.(a b)" of @entry_len
 * bytes; on success the shared length of the group is set.  */
static bool match_entry(const char *entry, size_t entry_len, const char *name,
                        struct fp8q_linear_place *out)
{
    const char *end = entry + entry_len, *n = name;
    *out = (struct fp8q_linear_place){.entry = entry, .group_len = strlen(name)};

    for (const char *e = entry; e < end; e++) {
        /* The members of a fused group end an entry.  */
        if (*e == '(') {
            out->fused = true;
            if (!out->expert)
                out->group_len = (size_t)(n - name);
            return match_member(e, n);
        }

        /* E stands for an expert's number, and its group ends before that.  */
        bool is_number = *e == 'E' && e > entry && e[-1] == '.' && e + 1 < end && e[1] == '.';
        if (is_number) {
            out->expert = true;
            out->group_len = (size_t)(n - name);
            if (!match_number(&n))
                return false;
        } else if (*e != *n++) {
            return false;
        }
    }

    return *n == '\0';
}

/* Length of the entry at @s; blanks inside parentheses belong to it.  */
static size_t entry_length(const char *s)
{
    size_t len = strcspn(s, " (");
    return s[len] == '(' ? len + strcspn(s + len, ")") + 1 : len;
}

static bool match_linears(const char *linears, const char *module, size_t layer,
                          struct fp8q_linear_place *out)
{
    for (const char *entry = linears; *entry; entry += strspn(entry, " ")) {
        size_t len = entry_length(entry);
        if (match_entry(entry, len, module + layer, out)) {
            out->group_len += layer;
            return true;
        }
        entry += len;
    }

    return false;
}

bool fp8q_family_linear(const struct fp8q_family *family, const char *module,
                        struct fp8q_linear_place *linear_out)
{
    size_t layer = fp8q_family_layer(family, module);
    return layer && match_linears(family->linears, module, layer, linear_out);
}

bool fp8q_family_stacked_experts(const struct fp8q_family *family, const char *name,
                                 bool *gate_up_out)
{
    static const char *const heads[] = {"mlp.experts.", "feed_forward.experts."};
    size_t layer = fp8q_family_layer(family, name);
    if (!layer)
        return false;

    const char *rest = name + layer;
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
        size_t len = strlen(heads[i]);
        if (strncmp(rest, heads[i], len) != 0)
            continue;
        *gate_up_out = strcmp(rest + len, "gate_up_proj") == 0;
        return *gate_up_out || strcmp(rest + len, "down_proj") == 0;
    }
    return false;
}

size_t fp8q_stack_root(const char *module)
{
    struct fp8q_linear_place place;
    size_t root = 0, layer = last_layer(module, &root);
    if (!layer || !match_linears(fp8q_general_language.linears, module, layer, &place))
        return SIZE_MAX;

    return root ? root - 1 : 0;
}
