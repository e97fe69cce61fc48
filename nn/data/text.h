// Text: vocabularies, and readers of files.
#pragma once

#include "nn/data/text/text_files.h"
#include "nn/data/text/text_vocabulary.h"
