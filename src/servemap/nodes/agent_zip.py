"""The on-node program as one file: the same bytes for the same sources, on every machine."""

import hashlib
import io
import zipfile
from pathlib import Path

import servemap.onnode

# The package stays a package inside the archive, so that its relative imports work.
ENTRY = "import sys\n\nfrom onnode.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
EARLIEST = (1980, 1, 1, 0, 0, 0)


def agent_sources() -> dict[str, bytes]:
    """Return {name in the archive: bytes} of the on-node program."""
    root = Path(servemap.onnode.__file__).parent
    files = {
        f"onnode/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*.py"))
    }
    return {"__main__.py": ENTRY.encode(), **files}


def archive(sources: dict[str, bytes]) -> bytes:
    """Return a .pyz of `sources`; stored, not deflated, since zlib's output varies."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            target.writestr(entry, sources[name])
    return buffer.getvalue()


def build_agent() -> tuple[str, bytes]:
    """Return the file name, which carries the digest of the contents, and the bytes."""
    data = archive(agent_sources())
    return f"onnode-{hashlib.sha256(data).hexdigest()[:16]}.pyz", data
