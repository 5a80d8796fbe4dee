"""`python -m servemap` is the command `servemap`."""

from servemap.cli import main

if __name__ == "__main__":
    main()
