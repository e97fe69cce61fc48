// Models of published architectures, their weights from files of other software, and what is done
// with them.
#pragma once

#include "nn/models/adapter.h"
#include "nn/models/efficientnet.h"
#include "nn/models/frozen_norm.h"
#include "nn/models/generate.h"
#include "nn/models/gpt2.h"
#include "nn/models/image_input.h"
#include "nn/models/language_model.h"
#include "nn/models/llama.h"
#include "nn/models/lora_targets.h"
#include "nn/models/pretrained.h"
#include "nn/models/pretrained_model.h"
#include "nn/models/resnet.h"
#include "nn/models/text_encoder.h"
#include "nn/models/tuning.h"
#include "nn/models/wide_resnet.h"
