/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_index.c - model.safetensors.index.json.  An accepted index passed the gate, is sorted
 * without repetition, and names only paths inside its directory.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "format/index.h"
#include "format/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fp8q_index index;
    struct fp8q_error err = {0};
    int status = fp8q_index_parse((const char *)data, size, "input", &index, &err);
    if (status != FP8Q_OK) {
        FUZZ_REQUIRE(status == FP8Q_E_FORMAT && err.id[0] && err.message[0]);
        return 0;
    }
    FUZZ_REQUIRE(fp8q_json_check((const char *)data, size, 0, "input", &err) == FP8Q_OK);
    FUZZ_REQUIRE(index.n_entries > 0 && index.n_shards > 0);
    FUZZ_REQUIRE(!index.total_size_ok || index.has_total_size);
    for (size_t i = 0; i < index.n_entries; i++) {
        FUZZ_REQUIRE(index.entries[i].shard < index.n_shards);
        FUZZ_REQUIRE(i == 0 || strcmp(index.entries[i - 1].tensor, index.entries[i].tensor) < 0);
    }
    for (size_t i = 0; i < index.n_shards; i++) {
        FUZZ_REQUIRE(!fp8q_index_bad_name(index.shards[i]));
        FUZZ_REQUIRE(!strstr(index.shards[i], "//") && strncmp(index.shards[i], "./", 2) != 0);
        FUZZ_REQUIRE(i == 0 || strcmp(index.shards[i - 1], index.shards[i]) < 0);
    }
    fp8q_index_reset(&index);
    return 0;
}
