"""The command line of Nsight Compute for one kernel of a reproduction script.

Options as `ncu --help` of 2024.1 gives them.
"""

from collections.abc import Sequence


def ncu_argv(
    command: Sequence[str],
    *,
    kernel: str,
    log: str,
    program: str = "ncu",
    skip: int = 0,
    count: int = 10,
    sections: Sequence[str] = (),
) -> list[str]:
    """Return the command that profiles launches of a kernel; its table goes to a file.

    Args:
        command: the script with its interpreter.
        kernel: regular expression for the kernel's name without its arguments.
        log: file for all that ncu says, the table in it.
        program: how ncu is called.
        skip: launches of that kernel to leave out first.
        count: launches to profile.
        sections: identifiers of sections; all of the set `full` if there are none.
    """
    wanted = [f"--section={name}" for name in sections] or ["--set=full"]
    chosen = [f"--kernel-name=regex:{kernel}", f"--launch-skip={skip}", f"--launch-count={count}"]
    page = ["--csv", "--page=raw", f"--log-file={log}", "--target-processes=all"]
    return [program, *page, *wanted, *chosen, *command]
