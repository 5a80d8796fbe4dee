"""`python -m servemap` is the command `servemap`."""

from servemap.entry import main

if __name__ == "__main__":
    main()
