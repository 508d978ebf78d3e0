"""POSIX cases that the public suites leave out: `python3 posix FOLDER [NAME...]`.

Each module here is a family, each function marked `@case` one case. A case runs in a process and a
folder of its own (its working directory) and is cut off after a time. Output: `ok NAME`,
`FAILED NAME: why`, `skipped NAME: why`. With names, only the cases that contain one of them run.
"""

import importlib
import os
import sys

import harness

FAMILIES = [
    "names", "links", "renames", "directories", "files", "space", "times", "maps",
    "locks", "flocks", "permissions", "identity", "attributes", "acl", "special", "habits",
]


def main():
    folder, wanted = sys.argv[1], sys.argv[2:]
    for family in FAMILIES:
        importlib.import_module(family)
    chosen = [case for case in harness.CASES if not wanted or any(part in case.name for part in wanted)]
    failures = sum(not harness.run(case, folder) for case in chosen)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
