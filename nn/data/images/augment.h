// Augmentation of pictures: random views that keep a picture's class. The randomness is public: a
// function of (seed, record, view), so that a repeated step gets equal views.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace sotto {

// Applied in this order; an option's initial value leaves the picture as it is.
struct Augmentation {
  // Moves by up to so many pixels in each direction; the border is reflected.
  std::int64_t shift = 0;
  // Exchanges left and right in half of the views.
  bool flip = false;
  // Factors drawn from [1 - value, 1 + value]: of all values; of their distance from the picture's
  // mean; and of their distance from its grey (red, green and blue pictures only). Values are then
  // limited to [0, 1].
  double brightness = 0, contrast = 0, saturation = 0;
  // Replaces a square of this side, around a random pixel, by its channel's mean (DeVries and
  // Taylor 2017, "Cutout").
  std::int64_t cutout = 0;
  // Mixes two views of one picture, u x + (1 - u) x' with u from Beta(mixup, mixup), 0.01 <= mixup
  // <= 1 (Zhang et al. 2018). Mixing two samples would undo the bound on one sample's influence.
  double mixup = 0;
};

// Numbers first, ..., first + count - 1 of each record's views under a seed.
struct Views {
  std::uint64_t seed = 0;  // public
  std::int64_t first = 0;  // number of the first view
  std::int64_t count = 1;  // views of each record
};

// The number of a view, and of its record in the data set.
struct RecordView {
  std::int64_t record = 0;  // in the data set
  std::int64_t view = 0;    // from 0
};

// Makes `count` views of each picture. images [n, c, h, w] is f32 on the CPU; images[k] is record
// records[k] >= 0 of the data set -> [n count, c, h, w], with its views in rows k count, ..., k
// count + count - 1. A view depends only on its picture, the seed, the record's number and the
// view's number. With K views of each record as rows of one unit this is the augmentation
// multiplicity of De et al. 2022. Throws std::invalid_argument for another shape or number of
// records, for options out of range, a shift not below the sides, and record numbers from 2^40 or
// view numbers from 2^48 on.
Tensor augment(const Tensor& images, std::span<const std::int64_t> records,
               const Augmentation& augmentation, const Views& views = {});
// Makes one view of each picture, number views[k]; records may repeat -> [n, c, h, w].
Tensor augment_each(const Tensor& images, std::span<const RecordView> views,
                    const Augmentation& augmentation, std::uint64_t seed = 0);

}  // namespace sotto
