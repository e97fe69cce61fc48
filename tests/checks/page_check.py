"""The command line of the checks that read the pages: ROOT prints what is wrong, --self checks the check."""
import pathlib
import sys


def run(usage, problems, check_itself):
    """Prints what problems(root), or with --self check_itself(), yields; returns the exit status."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    found = check_itself() if "--self" in sys.argv else list(problems(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found))
    return 1 if found else 0
