#include "nn/optim/update_sink.h"

#include "autograd/per_sample/per_sample_grad.h"
#include "nn/optim/optimizer.h"

namespace sotto::nn {

void UpdateSink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  check(updated_.insert(&parameter).second,
        "UpdateSink: a second gradient of a parameter {}: a sink serves one backward, and "
        "accumulated gradients need a SumSink",
        parameter.value.shape());
  SumSink sum;
  sum.receive(parameter, std::move(uses));
  optimizer_.step(sum.gradients());
}

}  // namespace sotto::nn
