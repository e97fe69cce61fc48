#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

PoolOptions pool_options(const Call& call) {
  return {.kernel = call.shape("kernel_size"),
          .stride = call.shape("stride"),
          .padding = call.shape("padding"),
          .ceil_mode = call.arg<bool>("ceil_mode")};
}

Var pooled_max(const Call& call) {
  PoolOptions options = pool_options(call);
  options.dilation = call.shape("dilation");
  return max_pool(call["x"], options);
}

Var pooled_avg(const Call& call) {
  PoolOptions options = pool_options(call);
  options.count_padding = call.arg<bool>("count_include_pad");
  return avg_pool(call["x"], options);
}

template <Var (*f)(const Var&, const Shape&)>
Var adaptive(const Call& call) {
  return f(call["x"], call.shape("output_size"));
}

Var upsampled(const Call& call) {
  const bool nearest = call.arg<std::string>("mode") == "nearest";
  return upsample(call["x"], call.shape("size"),
                  {.mode = nearest ? Interpolation::nearest : Interpolation::linear,
                   .align_corners = !nearest && call.arg<bool>("align_corners")});
}

Var transposed(const Call& call) {
  const ConvTransposeOptions options{.stride = call.shape("stride"),
                                     .padding = call.shape("padding"),
                                     .output_padding = call.shape("output_padding"),
                                     .dilation = call.shape("dilation"),
                                     .groups = call.arg<std::int64_t>("groups")};
  return conv_transpose(call["x"], call["weight"], call.maybe("bias"), options);
}

PadMode padding_mode(const std::string& name) {
  if (name == "zeros") return PadMode::zeros;
  if (name == "reflect") return PadMode::reflect;
  if (name == "replicate") return PadMode::replicate;
  if (name == "circular") return PadMode::circular;
  throw Malformed("padding_mode is " + name);
}

Var convolved(const Call& call) {
  ConvOptions options{.stride = call.shape("stride"),
                      .dilation = call.shape("dilation"),
                      .groups = call.arg<std::int64_t>("groups"),
                      .mode = padding_mode(call.arg<std::string>("padding_mode"))};
  const Json padding = call.arg<Json>("padding");
  if (padding == "same") {
    options.same = true;
  } else if (padding.is_array()) {
    options.padding = call.shape("padding");
  } else if (padding != "valid") {
    throw Malformed("padding is " + padding.dump());
  }
  return conv(call["x"], call["weight"], call.maybe("bias"), options);
}

}  // namespace

void add_images(Vocabulary& vocabulary) {
  for (const char* axes : {"1d", "2d", "3d"}) {
    vocabulary[std::string("max_pool") + axes] = single(pooled_max);
    vocabulary[std::string("avg_pool") + axes] = single(pooled_avg);
    vocabulary[std::string("Conv") + axes] = single(convolved);
    vocabulary[std::string("ConvTranspose") + axes] = single(transposed);
  }
  for (const char* axes : {"1d", "2d"}) {
    vocabulary[std::string("adaptive_avg_pool") + axes] = single(adaptive<adaptive_avg_pool>);
    vocabulary[std::string("adaptive_max_pool") + axes] = single(adaptive<adaptive_max_pool>);
  }
  vocabulary["upsample"] = single(upsampled);
}

}  // namespace sotto::conformance
