#!/usr/bin/env python3
"""Checks that names which gave way to the field's words do not come back; prints file:line: what, and fails on any.

A name counts where it stands as a whole word in code; comments and texts may say it. After a renaming, its old and
its new name are added to RENAMED, in the order of the alphabet.

usage: names.py ROOT [FILE...]    the sources of the tree, or these files alone
       names.py --self            checks that each old name would be found, and that comments and texts may say it
"""
import pathlib
import re
import sys
import tempfile

FOLDERS = ("core", "kernels", "autograd", "nn", "memory", "multilevel", "dp", "samples", "tests")
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
RENAMED = {
    "AllocationWatch": "AllocationObserver",
    "AnyBinarySlope": "AnyBinaryGrad",
    "AnyUnarySlope": "AnyUnaryGrad",
    "BatchChange": "Adjacency",
    "Batchable": "batchable",
    "BinarySlope": "BinaryGrad",
    "CallWatch": "ModuleHook",
    "Costs": "CostModel",
    "CutRun": "CheckpointRun",
    "DecideGroup": "DecideGroups",
    "DeviceClip": "GpuClip",
    "DiscretePair": "DiscretePld",
    "GradientDotParts": "GramDots",
    "GradientLength": "GradientNorm",
    "IdleWork": "BackgroundTask",
    "JumpCurve": "LargeLossCurve",
    "JumpEstimate": "LargeLossEstimate",
    "JumpPlan": "LargeLossPlan",
    "LedgerMark": "LedgerPosition",
    "LedgerRun::Pass": "LedgerRun::Epoch",
    "LossPair": "DominatingPair",
    "LossRounding": "Discretization",
    "LstmSlopes": "LstmCellGrad",
    "MemoryKind::factors": "MemoryKind::saved_factor",
    "MemoryKind::rows": "MemoryKind::per_sample_grad",
    "NewAccountant": "AccountantFactory",
    "NoiseAhead": "NoisePrefetch",
    "NoiseFactor": "StrategyFactor",
    "NoiseGoal": "ErrorObjective",
    "NoiseStrategy": "StrategyMatrix",
    "NormBounds": "NormErrorBounds",
    "NormTerms": "NormEstimate",
    "NormalBoxes": "ExactNormalSampler",
    "OnFinished": "OnBlockReady",
    "PassPlace": "EpochPosition",
    "PassSampler": "EpochSampler",
    "PeakWatch": "PeakMemoryTracker",
    "PerSample": "PerSampleGrad",
    "PhaseClock": "PhaseProfiler",
    "PiecesOfRow": "Bf16x2Row",
    "Places": "OpInputs",
    "PldQuestion": "PldQuery",
    "Relation": "NeighboringRelation",
    "Released": "NoisyGradient",
    "Route": "NormMethod",
    "RowFit": "BatchSizeSearch",
    "RowsSink": "PerSampleGradSink",
    "RuleConstants": "OptimizerConstants",
    "SampleCount": "changes_sample_count",
    "ScoreRule": "AttentionMask",
    "ScoreSlopes": "ScoreGrad",
    "SettleGroup": "DecideGroups",
    "SharedRun": "Agreement",
    "Shifted": "Replaced",
    "ToldSampler": "RemoteSampler",
    "TradeOffAudit": "ClopperPearsonAudit",
    "TradeOffOptions": "ClopperPearsonOptions",
    "UnarySlope": "UnaryGrad",
    "UnitFactors": "ClipFactors",
    "UnitLengths": "UnitNorms",
    "Way": "Strategy",
    "WholeProducts": "NoTf32Scope",
    "Width::follows": "Op::Precision::promote",
    "Width::narrow": "Op::Precision::lower",
    "Width::wide": "Op::Precision::f32",
    "accountant_called": "parse_accountant",
    "activation_called": "parse_activation",
    "add_escaped": "add_infinity_mass",
    "add_part": "add_physical_batch",
    "batches_of_pass": "batches_of_epoch",
    "best_banded_toeplitz": "optimize_banded_toeplitz",
    "best_buffered_toeplitz": "optimize_buffered_toeplitz",
    "by_coins": "sample_dense",
    "by_darts": "sample_sparse",
    "by_rank_0": "on_rank_0",
    "can_be_cut": "can_checkpoint",
    "choose_way": "choose_strategy",
    "count_noise": "unclipped_count_stddev",
    "cut_refusal": "truncation_refusal",
    "cut_within": "choose_checkpoints",
    "dealt_by_rank_0": "scatter",
    "deviation_limit": "stddev_limit",
    "device_named": "parse_device",
    "do_piece": "run_chunk",
    "draw_below": "uniform_int",
    "entry_called": "parse_entry",
    "expect_release": "prefetch",
    "expect_rows": "prefetch_rows",
    "fit_rows": "largest_batch_that_fits",
    "float_pieces": "float_bf16x2",
    "gather_tensors": "all_gather_tensors",
    "gradient_alone": "sample_gradient_f64",
    "gram_is_sound": "gram_is_accurate",
    "in_passes": "in_epochs",
    "jump_answer": "large_loss_answer",
    "jump_curve": "large_loss_curve",
    "jump_estimate": "large_loss_estimate",
    "jumps_": "large_losses_",
    "kept_samples": "preserve_sample_axis",
    "largest_clip_bound": "max_clip_bound",
    "largest_reservation": "max_reservation",
    "least_clip_bound": "min_clip_bound",
    "least_deviation": "min_stddev",
    "ledger_mark_from_json": "ledger_position_from_json",
    "lies_channels_last": "is_channels_last",
    "lstm_slopes": "lstm_cell_grad",
    "most_threads": "max_threads",
    "new_accountant": "make_accountant",
    "new_adaptive_accountant": "make_adaptive_accountant",
    "noise_deviation": "noise_stddev",
    "noise_stretch": "noise_block_size",
    "number_from": "resume_from",
    "number_in_row": "rng_counter",
    "of_all_ranks": "all_gather",
    "offer_idle_work": "offer_background_work",
    "on_each_rank": "on_all_ranks",
    "on_first_rank": "on_rank_0",
    "ops_with_width": "registered_ops",
    "pass_of": "epoch_of",
    "piece_rounding": "bf16x2_rounding",
    "places_of": "op_inputs",
    "relation_called": "parse_relation",
    "row_budget": "per_sample_grad_budget",
    "sampling_called": "parse_sampling",
    "set_largest_part": "set_max_physical_batch",
    "set_recompute": "set_recomputing",
    "softmax_slopes": "softmax_grad_row",
    "squashed": "tanh_cell",
    "sums_for_tests": "clipped_sums",
    "tell_values": "broadcast_values",
    "told_checkpoint": "broadcast_checkpoint",
    "told_tensors": "broadcast_tensors",
    "trade_off_audit": "clopper_pearson_audit",
    "turned_chains": "transposed_chains",
    "turned_square": "transposed_square",
    "uncaptured": "capture_failure_reason",
    "unproved": "unsupported_reason",
    "weighted_pieces": "scale_to_bf16x2",
    "whole_lstm": "fused_lstm",
    "wide_gemm": "gemm_f32",
    "wide_sum": "sum_f32",
    "widely": "simd_dispatch",
    "widened": "to_f32",
    "with_jumps": "with_large_losses",
    "withdraw_idle_work": "withdraw_background_work",
    "within_bound": "unclipped_fraction",
}
OLD = re.compile(r"\b(" + "|".join(RENAMED) + r")\b")
# Comments, texts and includes: blanked, but for their line ends.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|^\s*#\s*include[^\n]*', re.S | re.M)


def findings(path):
    code = NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text(encoding="utf-8"))
    for line, text in enumerate(code.splitlines(), 1):
        for name in OLD.findall(text):
            yield f"{path}:{line}: {name} is called {RENAMED[name]} today"


def finds_each():
    """Whether each old name is found in code, and in nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "old.h"
        source.write_text("".join(f'{name} x;  // {name}\nuse("{name}", {name}s, a_{name});\n' for name in RENAMED))
        expected = [f"{source}:{2 * i + 1}: {old} is called {new} today" for i, (old, new) in enumerate(RENAMED.items())]
        return list(findings(source)) == expected


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    if arguments == ["--self"]:
        return 0 if finds_each() else 1
    root = pathlib.Path(arguments[0])
    given = [pathlib.Path(name) for name in arguments[1:]]
    paths = given or [p for folder in FOLDERS for p in sorted((root / folder).rglob("*"))]
    found = [finding for path in paths if path.suffix in SOURCES for finding in findings(path)]
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
