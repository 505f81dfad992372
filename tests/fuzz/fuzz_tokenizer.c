/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tokenizer.c - a tokenizer.json from anywhere: refused with a message, or it encodes any text
 * with ids below its limit.
 */
#include "fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct fp8q_error err = {0};
    struct fp8q_tokenizer *tokenizer;
    struct fp8q_ids ids = {0};
    int status = fp8q_tokenizer_parse(text, size, "input", &tokenizer, &err);
    FUZZ_REQUIRE((status == FP8Q_OK) == (tokenizer != NULL));
    FUZZ_REQUIRE(status == FP8Q_OK || (err.id[0] && err.message[0]));
    if (status == FP8Q_OK) {
        static const char sample[] = "The model's 3 caf\xc3\xa9s\r\n\n  x\xe2\x82 e\xcc\x81 <|a|>";
        status = fp8q_tokenizer_encode(tokenizer, sample, sizeof(sample) - 1, &ids, &err);
        if (status == FP8Q_OK)
            status = fp8q_tokenizer_encode(tokenizer, text, size < 4096 ? size : 4096, &ids, &err);
        /* A pattern may be hopeless on some text; that is refused too.  */
        FUZZ_REQUIRE(status == FP8Q_OK || status == FP8Q_E_UNSUPPORTED);
        for (size_t i = 0; i < ids.count; i++)
            FUZZ_REQUIRE(ids.items[i] >= 0 &&
                         (uint32_t)ids.items[i] < fp8q_tokenizer_id_limit(tokenizer));
    }
    fp8q_ids_reset(&ids);
    fp8q_tokenizer_close(tokenizer);
    return 0;
}
