"""Private steps of Opacus and fastDP, for peers.py."""
LEARNING_RATE, SIGMA, BOUND = 0.01, 1.1, 1.0  # as in bench_steps
# Modes, and the package of each: materialised gradients, expanded weights, ghost clipping; fastDP's own choice.
MODES = {"hooks": "opacus", "ew": "opacus", "ghost": "opacus", "fastdp": "fastDP"}


def sgd(torch, model, learning_rate):
    return torch.optim.SGD(model.parameters(), lr=learning_rate, foreach=True)


def with_opacus(torch, networks, model, mode, samples, sigma, learning_rate):
    import opacus
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.grad_sample.gsm_exp_weights import GradSampleModuleExpandedWeights
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from opacus.validators import ModuleValidator
    if any(isinstance(layer, torch.nn.LSTM) for layer in model.modules()):
        model = ModuleValidator.fix(model)  # to Opacus' own LSTM
    model.of_each_sample = True
    for layer in model.modules():
        layer.inplace = False  # hooks refuse it
    optimizer = sgd(torch, model, learning_rate)
    settings = {"noise_multiplier": sigma, "max_grad_norm": BOUND, "expected_batch_size": samples}
    if mode in ("hooks", "ew"):
        wrapped = (opacus.GradSampleModule if mode == "hooks" else GradSampleModuleExpandedWeights)(model)
        return model, wrapped, opacus.optimizers.DPOptimizer(optimizer, **settings), networks.mean_loss

    class Criterion(torch.nn.Module):
        reduction = "mean"

        def forward(self, logits, labels):
            return networks.losses(logits, labels)

    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=BOUND, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(optimizer, **settings)
    return model, wrapped, optimizer, DPLossFastGradientClipping(wrapped, optimizer, Criterion())


def with_fastdp(torch, networks, model, samples, sigma, learning_rate):
    from fastDP import PrivacyEngine
    if any(isinstance(layer, torch.nn.LSTM) for layer in model.modules()):
        raise NotImplementedError("fastDP has no rule for an LSTM, and would train the other layers alone")
    optimizer = sgd(torch, model, learning_rate)
    engine = PrivacyEngine(model, batch_size=samples, sample_size=50_000, epochs=1, noise_multiplier=sigma,
                           max_grad_norm=BOUND, clipping_mode="MixOpt", clipping_fn="Abadi", clipping_style="all-layer",
                           loss_reduction="mean", origin_params=None)
    engine.attach(optimizer)
    return model, model, optimizer, networks.mean_loss


def prepared(torch, networks, model, mode, samples, sigma, learning_rate):
    """The model, which may be another, what is called in its place, its optimizer, and a function that gives its loss."""
    if mode == "fastdp":
        return with_fastdp(torch, networks, model, samples, sigma, learning_rate)
    return with_opacus(torch, networks, model, mode, samples, sigma, learning_rate)
