// Every layer.
#pragma once

#include "sotto/nn/activations.h"
#include "sotto/nn/attention_layers.h"
#include "sotto/nn/containers.h"
#include "sotto/nn/dense_layers.h"
#include "sotto/nn/embedding_bag.h"
#include "sotto/nn/image_layers.h"
#include "sotto/nn/lora.h"
#include "sotto/nn/loss_layers.h"
#include "sotto/nn/more_layers.h"
#include "sotto/nn/norm_layers.h"
#include "sotto/nn/recurrent_layers.h"
#include "sotto/nn/shape_layers.h"
