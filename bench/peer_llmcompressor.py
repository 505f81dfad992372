#!/usr/bin/env python3
"""peer_llmcompressor.py SRC DST WORKERS: llm-compressor's model_free_ptq, block-FP8, for bench_peers.sh."""
import sys

from llmcompressor import model_free_ptq

# Its default is one worker; one for each shard is its best setting, as it works file by file.
model_free_ptq(model_stub=sys.argv[1], save_directory=sys.argv[2], scheme="FP8_BLOCK",
               ignore=["re:.*visual.*", "re:.*embed_tokens.*", "lm_head"], max_workers=int(sys.argv[3]), device="cpu")
