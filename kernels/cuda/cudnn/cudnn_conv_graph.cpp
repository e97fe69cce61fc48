#include "kernels/cuda/cudnn/cudnn_conv_graph.h"

namespace sotto {

namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t max_workspace = std::int64_t{512} << 20;  // limit per plan, in bytes

// The spatial axes that the graph has: two, or three if the depth is not 1 throughout.
Numbers spatial_axes(const ConvProblem& p) {
  const bool flat = p.x.size[2] == 1 && p.y.size[2] == 1 && p.w.size[2] == 1;
  return flat ? Numbers{1, 2} : Numbers{0, 1, 2};
}

class ConvGraph {
 public:
  ConvGraph(const Call& call, const ConvProblem& problem)
      : call_(call), problem_(problem), axes_(spatial_axes(problem)) {}

  Descriptor operation() const {
    const Names name = names();
    Descriptor d(call_, name.type);
    d.set(call_, name.window, window());
    const View* const views[] = {&problem_.x, &problem_.w, &problem_.y};
    const cudnnBackendAttributeName_t of_views[] = {name.x, name.w, name.y};
    for (int i = 0; i < 3; ++i) {
      d.set(call_, of_views[i],
            tensor_descriptor(call_, {.id = conv_ids[i],
                                      .dtype = cudnn_type(views[i]->dtype),
                                      .size = of_axes(views[i]->size),
                                      .stride = of_axes(views[i]->stride)}));
    }
    d.set(call_, name.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0f});
    d.set(call_, name.beta, CUDNN_TYPE_FLOAT, std::vector{0.0f});
    d.finalize(call_);
    return d;
  }

 private:
  // The list's entries for sample, channel and the graph's spatial axes.
  Numbers of_axes(const std::int64_t* list) const {
    Numbers values{list[0], list[1]};
    for (const std::int64_t axis : axes_) values.push_back(list[axis + 2]);
    return values;
  }
  Descriptor window() const {
    const Window& w = problem_.window;
    const auto of = [&](const std::int64_t* list) {
      Numbers values;
      for (const std::int64_t axis : axes_) values.push_back(list[axis]);
      return values;
    };
    Descriptor d(call_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Numbers{std::ssize(axes_)});
    d.set(call_, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
          std::vector{CUDNN_DATA_FLOAT});
    d.set(call_, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
          std::vector{CUDNN_CROSS_CORRELATION});
    d.set(call_, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, of(w.before));
    d.set(call_, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, of(w.after));
    d.set(call_, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, of(w.dilation));
    d.set(call_, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, of(w.stride));
    d.finalize(call_);
    return d;
  }
  struct Names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, window, x, w, y;
  };
  Names names() const {
    switch (problem_.pass) {
      case ConvPass::forward:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
      case ConvPass::data:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
      default:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    }
  }

  const Call& call_;
  const ConvProblem& problem_;
  Numbers axes_;
};

}  // namespace

std::vector<Descriptor> conv_plans(const Call& call, const PlanTarget& target,
                                   const ConvProblem& problem, bool transforms, std::size_t max) {
  std::vector<Descriptor> operations;
  operations.push_back(ConvGraph(call, problem).operation());
  const bool whole = problem.x.dtype == Dtype::f32 && !problem.tf32;
  const bool transformed = transforms && problem.pass != ConvPass::weight;
  const auto allowed = [&](const EngineNotes& notes) {
    return !(whole && noted(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) &&
           !noted(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
           !noted(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
           !noted(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           (transformed || !(noted(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD) ||
                             noted(notes, CUDNN_NUMERICAL_NOTE_FFT)));
  };
  return find_plans(call, target, operations, allowed, max, max_workspace);
}

}  // namespace sotto
