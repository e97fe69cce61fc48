#!/usr/bin/env python3
"""Extrapolates a private step to many ranks, from measured times.

  rank_scaling.py --latency 20e-6 --message 5e-6 --bandwidth 4e9 --models mnist:0.05:26010:1 ...

A model is NAME:SECONDS:PARAMETERS:BUCKETS, with the seconds of a step of one rank. With W ranks a step
takes the longer of its computation, SECONDS / W, and the messages that travel meanwhile, and then what
nothing hides: the order, the last sums, the permission, and the last values.

  an operation        latency + (W - 1) * message, as each rank sends to every other
  sums, values        BUCKETS operations each, and 3 (W - 1) / W of the parameters' bytes in all
  exposed             four operations
  W stops paying      where twice as many ranks make a step no shorter

Prints a Markdown table of how many times faster a step is than on one rank.
"""
import argparse


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--latency", type=float, required=True, help="seconds of an operation of two ranks, without bytes")
    p.add_argument("--message", type=float, required=True, help="seconds that a further rank adds to an operation")
    p.add_argument("--bandwidth", type=float, required=True, help="bytes per second that a rank sends")
    p.add_argument("--models", nargs="+", required=True, metavar="NAME:SECONDS:PARAMETERS:BUCKETS")
    return p.parse_args()


def seconds(args, ranks, alone, parameters, buckets):
    if ranks == 1:
        return alone
    operation = args.latency + (ranks - 2) * args.message
    travel = 2 * buckets * operation + 3 * 4 * parameters * (ranks - 1) / ranks / args.bandwidth
    return max(alone / ranks, travel) + 4 * operation


def main():
    args = arguments()
    ranks = [4 ** k for k in range(7)]
    print("| model | " + " | ".join(str(w) for w in ranks) + " | stops paying at |")
    print("|---|" + "--:|" * (len(ranks) + 1))
    for model in args.models:
        name, alone, parameters, buckets = model.split(":")


        def step(w, known=(float(alone), float(parameters), int(buckets))):
            return seconds(args, w, *known)

        limit = next((w for w in (2 ** k for k in range(13)) if step(2 * w) >= step(w)), None)
        cells = [f"{step(1) / step(w):.1f}" for w in ranks]
        print(f"| {name} | " + " | ".join(cells) + f" | {limit or 'none of these'} |")


if __name__ == "__main__":
    main()
