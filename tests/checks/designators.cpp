// Options are filled in by designators, without a warning for those that are left out: compiled
// with -Wmissing-field-initializers, which the rest of the project is not.
#include <sotto/autograd/check/check_op.h>
#include <sotto/dp/auditing.h>
#include <sotto/dp/sampling.h>
#include <sotto/nn/functional.h>
#include <sotto/sotto.h>

using namespace sotto;

namespace {

template <class... Options>
int count(const Options&...) {
  return sizeof...(Options);
}

int of_training() {
  const EngineOptions calibrated{.target_epsilon = 3, .steps = 20};
  const EngineOptions fixed{.noise_multiplier = 1, .seed = 1};
  return count(calibrated, fixed, memory::Policy{.physical_batch = 8}, memory::Policy{.limit = 0},
               ClipOptions{.count_finite = true}, ClipGroup{.bound = 1},
               AdaptiveClipping{.quantile = 0.5}, memory::LossScaling{.growth_interval = 9},
               TrainOptions{.save_every = 2}, MeanQuery{.sampling_rate = 1},
               SamplerOptions{.expected_batch = 8}, PrivacyTarget{.epsilon = 1},
               ErrorObjective{.steps = 4}, LedgerHeader{.unit = "one user"}, CanaryOptions{},
               TapeOptions{.private_data = true}, TensorFile{.tensors = {}}, Dataset{.units = {}},
               TableSchema{.header = false}, TableColumn{.range = {}}, Category{.spellings = {}},
               TableOptions{.labels = false}, GuessOptions{.user = {}});
}

int of_models() {
  return count(nn::LinearOptions{.bias = false}, nn::EmbeddingOptions{.padding = 0},
               nn::NormOptions{.eps = 1}, nn::RecurrentOptions{.bias = true},
               nn::RecurrentInputs{.lengths = {}}, nn::AttentionMasks{.causal = true},
               nn::MultiheadOptions{.heads = 2}, nn::MultiheadAttentionOptions{.kdim = 2},
               nn::TransformerOptions{.dropout = 0}, nn::SgdRule{.momentum = 0.9},
               nn::LoraOptions{.rank = 2}, nn::ScaleShift{.bias = {}}, nn::BagOptions{},
               ConvTransposeOptions{.stride = {2}});
}

int of_functions() {
  return count(CrossEntropyOptions{.label_smoothing = 0.1}, NllOptions{.ignore_index = 0},
               LogitsOptions{.weight = {}}, SoftTargetOptions{.class_axis = 1},
               CtcOptions{.blank = 0}, AttentionOptions{.causal = true}, ConvOptions{.groups = 1},
               PoolOptions{}, UpsampleOptions{}, SequenceOptions{}, Grouping{.units = 2},
               testing::OpInput{.samples = 0}, testing::Instance{.inputs = {}},
               testing::OpCase{.op = "cube"}, testing::CheckOptions{.instances = 1});
}

}  // namespace

int main() { return of_training() + of_models() + of_functions() == 52 ? 0 : 1; }
