// Text: vocabularies, readers of files, and tokenizers of pretrained models.
#pragma once

#include "nn/data/text/text_files.h"
#include "nn/data/text/text_records.h"
#include "nn/data/text/text_vocabulary.h"
#include "nn/data/tokenizer/tokenizer.h"
