"""`python -m perennial` is the `perennial` command."""

from perennial.cli import main

if __name__ == "__main__":
    main()
