#!/usr/bin/env python3
"""Attacks the programs, and counts what they do that is dangerous or wrong.

docs/appendix/attacks.md says what is attacked. Prints "N attacks: dangerous N, wrong N" last, and fails unless
both are 0.
"""

import argparse
import sys
import time

from calls import Calls
from mutations import Mutations
from options import Options
from outputs import Outputs
from world import World

PARTS = {"outputs": Outputs, "calls": Calls, "mutations": Mutations, "options": Options}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--count", type=int, default=0,
                        help="lives that end and files that are mutated; 0: the short form")
    parser.add_argument("--part", choices=PARTS, action="append", help="of the attacks; all")
    arguments = parser.parse_args()
    world = World(arguments.build, arguments.seed, arguments.count)
    try:
        for part in arguments.part or PARTS:
            start, before = time.monotonic(), world.attacks
            PARTS[part](world).run()
            print(f"{part}: {world.attacks - before} attacks in {time.monotonic() - start:.0f} s",
                  flush=True)
    finally:
        world.close()
    dangerous, wrong = (len(world.found[kind]) for kind in ("dangerous", "wrong"))
    print(f"{world.attacks} attacks, seed {world.seed}: dangerous {dangerous}, wrong {wrong}")
    sys.exit(dangerous + wrong > 0)


if __name__ == "__main__":
    main()
