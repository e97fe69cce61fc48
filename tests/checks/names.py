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

FOLDERS = ("core", "kernels", "autograd", "nn", "memory", "dp", "samples", "tests")
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
RENAMED = {
    "AllocationWatch": "AllocationObserver",
    "BatchChange": "Adjacency",
    "CallWatch": "ModuleHook",
    "CutRun": "CheckpointRun",
    "DiscretePair": "DiscretePld",
    "GradientLength": "GradientNorm",
    "IdleWork": "BackgroundTask",
    "JumpCurve": "LargeLossCurve",
    "LedgerMark": "LedgerPosition",
    "LossPair": "DominatingPair",
    "LossRounding": "Discretization",
    "NoiseAhead": "NoisePrefetch",
    "NoiseFactor": "StrategyFactor",
    "NoiseGoal": "ErrorObjective",
    "NoiseStrategy": "StrategyMatrix",
    "NormBounds": "NormErrorBounds",
    "NormTerms": "NormEstimate",
    "NormalBoxes": "ExactNormalSampler",
    "OnFinished": "OnBlockReady",
    "PassPlace": "EpochPosition",
    "PeakWatch": "PeakMemoryTracker",
    "PerSample": "PerSampleGrad",
    "PhaseClock": "PhaseProfiler",
    "PldQuestion": "PldQuery",
    "Relation": "NeighboringRelation",
    "Released": "NoisyGradient",
    "Route": "NormMethod",
    "RowFit": "BatchSizeSearch",
    "RowsSink": "PerSampleGradSink",
    "ScoreRule": "AttentionMask",
    "UnitFactors": "ClipFactors",
    "UnitLengths": "UnitNorms",
    "Way": "Strategy",
    "WholeProducts": "NoTf32Scope",
    "accountant_called": "parse_accountant",
    "add_part": "add_physical_batch",
    "by_coins": "sample_dense",
    "by_darts": "sample_sparse",
    "can_be_cut": "can_checkpoint",
    "choose_way": "choose_strategy",
    "count_noise": "unclipped_count_stddev",
    "cut_within": "choose_checkpoints",
    "device_named": "parse_device",
    "do_piece": "run_chunk",
    "draw_below": "uniform_int",
    "entry_called": "parse_entry",
    "fit_rows": "largest_batch_that_fits",
    "gram_is_sound": "gram_is_accurate",
    "gradient_alone": "sample_gradient_f64",
    "kept_samples": "preserve_sample_axis",
    "lies_channels_last": "is_channels_last",
    "lstm_slopes": "lstm_cell_grad",
    "new_accountant": "make_accountant",
    "noise_stretch": "noise_block_size",
    "number_from": "resume_from",
    "number_in_row": "rng_counter",
    "row_budget": "per_sample_grad_budget",
    "set_recompute": "set_recomputing",
    "squashed": "tanh_cell",
    "uncaptured": "capture_failure_reason",
    "unproved": "unsupported_reason",
    "weighted_pieces": "scale_to_bf16x2",
    "wide_gemm": "gemm_f32",
    "wide_sum": "sum_f32",
    "widely": "simd_dispatch",
    "widened": "to_f32",
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
