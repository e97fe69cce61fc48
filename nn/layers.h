// Every layer: the headers of nn/layers.
#pragma once

#include "nn/layers/activation_layers.h"
#include "nn/layers/attention_layers.h"
#include "nn/layers/containers.h"
#include "nn/layers/conv_pool_layers.h"
#include "nn/layers/dense_layers.h"
#include "nn/layers/embedding_bag.h"
#include "nn/layers/lora.h"
#include "nn/layers/loss_layers.h"
#include "nn/layers/norm_layers.h"
#include "nn/layers/quantized_layers.h"
#include "nn/layers/recurrent_layers.h"
#include "nn/layers/resampling_layers.h"
#include "nn/layers/shape_layers.h"
