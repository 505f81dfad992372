/* SPDX-License-Identifier: Apache-2.0
 *
 * spellings.c - a module's names in the trees of other classes.
 */
#include "plan/spellings.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "select/fused.h"

/* ---- the list -------------------------------------------------------------------------------- */

void fp8q_spellings_add(struct fp8q_spellings *list, const char *head, size_t head_len,
                        const char *tail)
{
    if (list->failed)
        return;

    char *item = malloc(head_len + strlen(tail) + 1);
    size_t size = sizeof(*list->items);
    if (!item || fp8q_grow(&list->items, list->count, &list->cap, size, NULL) != FP8Q_OK) {
        list->failed = true;
        free(item);
        return;
    }

    memcpy(item, head, head_len);
    strcpy(item + head_len, tail);
    list->items[list->count++] = item;
}

void fp8q_spellings_sort(struct fp8q_spellings *list)
{
    if (list->count < 2)
        return;

    qsort(list->items, list->count, sizeof(*list->items), fp8q_compare_strings);
    size_t n = 1;
    for (size_t i = 1; i < list->count; i++)
        if (strcmp(list->items[n - 1], list->items[i]) == 0)
            free(list->items[i]);
        else
            list->items[n++] = list->items[i];

    list->count = n;
}

void fp8q_spellings_reset(struct fp8q_spellings *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct fp8q_spellings){.items = NULL};
}

/* ---- spellings ------------------------------------------------------------------------------- */

/* One module name under the other prefixes that the same model's classes use.  */
void fp8q_spell_prefixes(struct fp8q_spellings *list, const char *name, bool is_root)
{
    static const char new_vlm[] = "model.language_model.", old_vlm[] = "language_model.model.";
    fp8q_spellings_add(list, name, strlen(name), "");

    if (fp8q_starts_with(name, new_vlm)) {
        const char *rest = name + sizeof(new_vlm) - 1;
        fp8q_spellings_add(list, old_vlm, sizeof(old_vlm) - 1, rest);
        fp8q_spellings_add(list, "model.", 6, rest); /* loaded as a text-only model */
    } else if (fp8q_starts_with(name, old_vlm)) {
        const char *rest = name + sizeof(old_vlm) - 1;
        fp8q_spellings_add(list, new_vlm, sizeof(new_vlm) - 1, rest);
        fp8q_spellings_add(list, "model.", 6, rest);
    } else if (list->of_vlm && fp8q_starts_with(name, "model.layers.")) {
        fp8q_spellings_add(list, new_vlm, sizeof(new_vlm) - 1, name + 6);
        fp8q_spellings_add(list, old_vlm, sizeof(old_vlm) - 1, name + 6);
    } else if (fp8q_starts_with(name, "layers.")) {
        fp8q_spellings_add(list, "model.", 6,
                           name); /* a base model: causal classes put `model.` before it */
    }

    /* Older and newer classes keep towers with and without `model.`.  */
    if (is_root && fp8q_starts_with(name, "model."))
        fp8q_spellings_add(list, name + 6, strlen(name + 6), "");
    else if (is_root)
        fp8q_spellings_add(list, "model.", 6, name);
}

/* The same for the first @len bytes of @text with @tail behind them.  */
void fp8q_spell_joined(struct fp8q_spellings *list, const char *text, size_t len, const char *tail,
                       bool is_root)
{
    struct fp8q_text name = {0};
    fp8q_text_add(&name, text, len);
    fp8q_text_puts(&name, tail);
    if (name.failed)
        list->failed = true;
    else
        fp8q_spell_prefixes(list, name.data, is_root);
    fp8q_text_reset(&name);
}

/* A module, what engines call the matrix that it is a part of, and the parts of one that is fused
 * on disk.  */
void fp8q_spell_module(struct fp8q_spellings *list, const char *module, bool is_root)
{
    const char *dot = strrchr(module, '.');
    const char *last = dot ? dot + 1 : module;
    size_t head = (size_t)(last - module);
    const struct fp8q_fused *part = fp8q_fused_of_part(last);
    const struct fp8q_fused *whole = fp8q_fused_of_whole(last);
    fp8q_spell_prefixes(list, module, is_root);

    /* vLLM and SGLang ask by parts, lmdeploy by the whole, and files may have either.  */
    if (part && part->name)
        fp8q_spell_joined(list, module, head, part->name, is_root);
    if (whole && whole->name && strcmp(whole->name, last) != 0)
        fp8q_spell_joined(list, module, head, whole->name, is_root);
    for (size_t i = 0; whole && whole->parts[i]; i++)
        fp8q_spell_joined(list, module, head, whole->parts[i], is_root);
}
