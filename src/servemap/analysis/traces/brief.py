"""Names of kernels and operators where there is room for a part of them only."""


def brief(name: str, width: int) -> str:
    """Return a name in so many characters, its middle left out: kernels differ at their ends."""
    if len(name) <= width:
        return name
    head = width * 3 // 5
    return f"{name[:head]}…{name[len(name) - (width - head - 1) :]}"
