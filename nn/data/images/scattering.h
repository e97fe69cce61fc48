// Fixed features of pictures. A linear model on them needs less noise than a network that learns
// its features (Tramèr and Boneh 2021, "Differentially private learning needs better features").
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace sotto {

// The paths of the scattering transform with 2 scales and 8 angles: 1 + 2 * 8 + 8 * 8.
inline constexpr std::int64_t scattering_paths = 81;

// The scattering transform of each channel (Oyallon and Mallat 2015, "Deep roto-translation
// scattering for object classification"), with the filters, the reflected border and the order of
// paths of Kymatio's Scattering2D(J=2, L=8): [n, c, h, w] f32 -> [n, 81 c, h/4, w/4] f32, channel
// by channel. No value of it depends on another picture. Throws std::invalid_argument unless h and
// w are multiples of 4 from 8 to 496, and where the tensor is not row-major f32 on the CPU.
// `progress` is called on this thread with the pictures done so far and their number.
Tensor scattering_features(
    const Tensor& images,
    const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace sotto
