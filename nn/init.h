// Initial values of parameters, drawn from public randomness. Each layer draws from init_random()
// when it is constructed: the same seed and the same order of construction give the same model.
#pragma once

#include <cstdint>

#include "core/random/philox.h"
#include "core/tensor.h"

namespace sotto::nn {

// The calling thread's generator of initial values; its first seed is 0.
PublicRandom& init_random();
// Restarts the calling thread's generator with a seed.
void manual_seed(std::uint64_t seed);

// The fan-in (inputs that one output sums over) and fan-out (outputs that one input reaches) of a
// weight [o, i, kernel...]: i or o times the kernel's size. Throws std::invalid_argument below rank
// 2.
struct Fans {
  std::int64_t in;   // fan-in
  std::int64_t out;  // fan-out
};
Fans fans(const Shape& weight);  // of a weight [out, in, kernel...]

// The fan that a standard deviation refers to.
enum class Fan { in, out };
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };
// The customary gain: the standard deviation of weights before a nonlinearity is gain / sqrt(fan).
// It is 1, 1, 5/3, sqrt(2), sqrt(2 / (1 + slope^2)) and 3/4, in the order of Nonlinearity. `slope`
// is that of leaky_relu.
double gain(Nonlinearity nonlinearity, double slope = 0.01);

// All functions below draw f32 values on the CPU, in row-major order.
// random_uniform: uniform in [low, high). random_normal: `stddev` is the standard deviation.
Tensor random_uniform(const Shape& shape, double low, double high,
                      PublicRandom& random = init_random());
// Normal numbers of this mean and standard deviation; f32 [shape].
Tensor random_normal(const Shape& shape, double mean = 0, double stddev = 1,
                     PublicRandom& random = init_random());

// The options of kaiming_uniform() and kaiming_normal(), with the defaults of PyTorch.
struct Kaiming {
  Fan fan = Fan::in;                                  // fan-in or fan-out
  double gain = sotto::nn::gain(Nonlinearity::relu);  // numerator of the standard deviation
};
// Standard deviation gain / sqrt(fan) (He et al. 2015, equations 10 and 14).
Tensor kaiming_uniform(const Shape& weight, const Kaiming& options = {},
                       PublicRandom& random = init_random());
// As kaiming_uniform(), from a normal distribution of the same variance.
Tensor kaiming_normal(const Shape& weight, const Kaiming& options = {},
                      PublicRandom& random = init_random());
// Standard deviation gain sqrt(2 / (fan in + fan out)) (Glorot and Bengio 2010, equation 16).
Tensor xavier_uniform(const Shape& weight, double gain = 1, PublicRandom& random = init_random());
// As xavier_uniform(), from a normal distribution of the same variance.
Tensor xavier_normal(const Shape& weight, double gain = 1, PublicRandom& random = init_random());

}  // namespace sotto::nn
