#include "dp/clipping/clipped_sum.h"

#include <utility>

#include "core/error.h"
#include "dp/clipping/clipped_sum_content.h"

namespace sotto {

ClippedSum::ClippedSum(std::unique_ptr<Content> content) : content_(std::move(content)) {}
ClippedSum::ClippedSum(ClippedSum&&) noexcept = default;
ClippedSum& ClippedSum::operator=(ClippedSum&&) noexcept = default;
ClippedSum::~ClippedSum() = default;

void ClippedSum::Content::complete() {
  for (std::size_t k = 0; k < deferred.size(); ++k) {
    if (const auto sum = std::exchange(deferred[k], nullptr)) sums[k].second = sum->whole();
  }
}

ClippedSum::Content& ClippedSum::content() const {
  check(content_ != nullptr, "clipped sum: it was moved from");
  return *content_;
}

double ClippedSum::sensitivity() const { return content().sensitivity; }
std::int64_t ClippedSum::groups() const { return std::ssize(content().unclipped); }
bool ClippedSum::counts_finite() const { return content().finite.has_value(); }
const SampledBatch& ClippedSum::draw() const { return content().draw; }

}  // namespace sotto
