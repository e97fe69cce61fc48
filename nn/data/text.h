// Text: vocabularies, readers of files, tokenizers of pretrained models, and rows of tokens.
#pragma once

#include "nn/data/text/text_files.h"
#include "nn/data/text/text_records.h"
#include "nn/data/text/text_vocabulary.h"
#include "nn/data/text/token_dataset.h"
#include "nn/data/tokenizer/tokenizer.h"
