"""`python -m peptidyn`: the command line."""

from peptidyn.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
