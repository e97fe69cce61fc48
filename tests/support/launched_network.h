// The network whose launches are counted and timed.
#pragma once

#include "nn/layers.h"

namespace sotto {

// A network for [n, 1, 28, 28]: two convolutions and two linear layers with 26,010 parameters, so
// small that launches dominate its steps.
inline nn::Sequential launched_network() {
  return nn::Sequential{nn::Conv2d(1, 16, 8, {.stride = {2}, .padding = {3}}),
                        nn::Relu(),
                        nn::MaxPool2d(2, 1),
                        nn::Conv2d(16, 32, 4, {.stride = {2}}),
                        nn::Relu(),
                        nn::MaxPool2d(2, 1),
                        nn::Flatten(),
                        nn::Linear(512, 32),
                        nn::Relu(),
                        nn::Linear(32, 10)};
}

}  // namespace sotto
