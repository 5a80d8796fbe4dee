"""The image of a container: made present on a node, known by its id, compared between nodes."""

import posixpath
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servemap.model.errors import ConfigError, LaunchError
from servemap.model.files import parse_json
from servemap.model.server_spec import Build, Container
from servemap.nodes.base import Completed, Node
from servemap.server.gates.checks import Check

KEY = "server.container"
SHORT_S = 60.0
LONG_S = 7200.0
"""Time for an image of tens of gigabytes to be loaded, fetched or built."""

REVISION = "org.opencontainers.image.revision"
"""Label for the commit (OCI image specification, annotations)."""

# podman takes no format that begins with other than a field.
_FORMAT = (
    '{{.Id}} {"digests":{{json .RepoDigests}},"labels":{{json .Config.Labels}},'
    '"env":{{json .Config.Env}}}'
)


@dataclass(frozen=True)
class Image:
    """An image on a node.

    Attributes:
        name: as it was asked for; with the commit in its tag where it was built.
        id: `sha256:...` of its configuration.
        digest: `sha256:...` of its manifest; None where the runtime knows none.
        commit: that it was built from; None for others.
        python_path: the PYTHONPATH that it sets; None if it sets none.
    """

    name: str
    id: str
    digest: str | None = None
    commit: str | None = None
    python_path: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the image as it is stored."""
        kept = asdict(self)
        del kept["python_path"]
        return kept


def inspect_argv(runtime: Sequence[str], name: str) -> list[str]:
    """Return the command that says whether a node has an image, and which."""
    return [*runtime, "image", "inspect", "--format", _FORMAT, name]


def parse_image(name: str, text: str) -> Image:
    """Return the image from the answer to `inspect_argv`.

    Raises:
        ValueError: it is not such an answer.
    """
    image_id, _, rest = text.strip().partition(" ")
    data = parse_json(rest)
    if not image_id or not isinstance(data, dict):
        raise ValueError("not an image")
    image_id = image_id if ":" in image_id else f"sha256:{image_id}"
    said = data.get("digests")
    digests = [
        one
        for one in (said if isinstance(said, list) else [])
        if isinstance(one, str) and "@sha256:" in one
    ]
    repository = name.partition("@")[0]
    if ":" in repository.rpartition("/")[2]:
        repository = repository.rpartition(":")[0]
    ours = [one for one in digests if one.partition("@")[0] == repository]
    found = sorted(ours or digests)
    labels = data.get("labels")
    commit = labels.get(REVISION) if isinstance(labels, dict) else None
    return Image(
        name,
        image_id,
        found[0].partition("@")[2] if found else None,
        commit if isinstance(commit, str) else None,
        _python_path(data.get("env")),
    )


def _python_path(env: Any) -> str | None:
    for line in env if isinstance(env, list) else ():
        name, _, value = str(line).partition("=")
        if name == "PYTHONPATH":
            return value
    return None


def built_name(name: str, commit: str) -> str:
    """Return an image's name with the commit in its tag: `x:local` gives `x:local-0123456789ab`."""
    return f"{name}{'-' if ':' in name.rpartition('/')[2] else ':'}{commit[:12]}"


def build_argv(
    runtime: Sequence[str], name: str, build: Build, commit: str, folder: str
) -> list[str]:
    """Return the command that builds an image from a folder on the node."""
    file = posixpath.join(folder, build.file)
    return [
        *runtime, "build", f"--tag={name}", f"--file={file}", f"--label={REVISION}={commit}", folder
    ]  # fmt: skip


def find_image(node: Node, container: Container, runtime: Sequence[str]) -> Image | None:
    """Return a container's image if it is on a node; nothing is brought there.

    Raises:
        ConfigError: there is no such commit to build.
        LaunchError: the runtime there does not say.
        NodeError: the node did not do its part.
    """
    return _look(node, runtime, _name(container)[0])


def ensure_image(
    node: Node,
    container: Container,
    runtime: Sequence[str],
    *,
    workdir: str,
) -> Image:
    """Return a container's image on a node, made present there as the campaign allows.

    An image that is there is taken as it is. Else it is built (`build`), loaded (`load`) or fetched
    (`pull: missing`), in this order of preference.

    Args:
        node: the node.
        container: names the image and says how it may come.
        runtime: from `server.container.runtime_argv`.
        workdir: the run's folder on the node; what a build needs lies there for its duration.

    Raises:
        ConfigError: there is no such commit to build.
        LaunchError: the image is not there and may or can not be brought there.
        NodeError: the node did not do its part.
    """
    name, commit = _name(container)
    found = _look(node, runtime, name)
    if found is not None:
        return found
    if container.build and commit:
        _build(node, runtime, name, container.build, commit, workdir)
    elif container.load:
        _do(node, [*runtime, "load", "-i", container.load], f"loading {container.load}")
    elif container.pull == "missing":
        _do(node, [*runtime, "pull", name], f"fetching the image {name}")
    else:
        raise LaunchError(
            f"the image {name} is not on the node",
            f"node {node.name}, {KEY}.image",
            "bring it there, or set server.container.pull: missing, load or build",
        )
    found = _look(node, runtime, name)
    if found is None:
        raise LaunchError(
            f"the image {name} is still not on the node",
            f"node {node.name}, {KEY}",
            "the archive or the build made an image of another name: mend server.container.image",
        )
    return found


def image_drift(before: Mapping[str, Any], now: Image) -> list[str]:
    """Return in words how an image differs from its record; empty where it is the same."""
    if before.get("id") == now.id or (now.digest and before.get("digest") == now.digest):
        return []
    return [f"the image {before.get('name')} was {before.get('id')}, {now.name} is {now.id}"]


def images_differ(images: Mapping[str, Image]) -> list[str]:
    """Return in words which nodes have another image than the first; empty where all agree.

    The same id or the same digest is the same image. Images that were built on their nodes have ids
    of their own: there the commit is compared.
    """
    if not images:
        return []
    (first, wanted), *others = images.items()
    return [
        f"{node} has {_say(image)}, {first} has {_say(wanted)}"
        for node, image in others
        if image.id != wanted.id
        and (image.digest is None or image.digest != wanted.digest)
        and (image.commit is None or image.commit != wanted.commit)
    ]


def check_images(
    images: Mapping[str, Image], frozen: Mapping[str, Mapping[str, Any] | None]
) -> Check:
    """Check that the nodes of a server have the same image, and the one that was frozen.

    Args:
        images: {node: its image now}.
        frozen: {node: `Image.record` of the frozen image, None where none was}.
    """
    found = images_differ(images)
    for node, image in images.items():
        before = frozen.get(node)
        found += [f"{node}: {text}" for text in image_drift(before, image)] if before else []
    if found:
        return Check(
            "image",
            False,
            "; ".join(found),
            "give all nodes the same image, pinned by digest; or freeze anew",
        )
    evidence = "; ".join(f"{node} has {_say(image)}" for node, image in images.items())
    return Check("image", True, evidence)


def _say(image: Image) -> str:
    return f"{image.name} ({image.digest or image.id})"


def _look(node: Node, runtime: Sequence[str], name: str) -> Image | None:
    done = node.run(inspect_argv(runtime, name), timeout_s=SHORT_S)
    if done.code == 0:
        try:
            return parse_image(name, done.stdout)
        except ValueError as error:
            raise _failed(node, done, f"asking for the image {name} gave {error}") from error
    said = done.stderr.lower()
    if "no such image" in said or "image not known" in said:
        return None
    raise _failed(node, done, f"asking for the image {name} failed")


def _do(node: Node, argv: list[str], what: str) -> None:
    done = node.run(argv, timeout_s=LONG_S)
    if done.code != 0:
        raise _failed(node, done, f"{what} failed")


def _failed(node: Node, done: Completed, what: str) -> LaunchError:
    said = (done.stderr or done.stdout).strip()[-500:] or f"exit code {done.code}"
    return LaunchError(
        f"{what}: {said}",
        f"node {node.name}: {shlex.join(done.argv)[:500]}",
        "run that command on the node and mend what it says; nodes.become uses sudo for it",
    )


def _git(build: Build, *args: str) -> str:
    argv = ["git", "-C", build.repo, *args]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=False)
    except OSError as error:
        raise ConfigError(
            f"cannot run git: {error.strerror}", f"{KEY}.build", "install git here"
        ) from error
    if done.returncode != 0:
        raise ConfigError(
            f"git {args[0]}: {done.stderr.strip()[-300:]}",
            f"{KEY}.build",
            "give a git repository here and a commit, tag or branch of it",
        )
    return done.stdout.strip()


def _name(container: Container) -> tuple[str, str | None]:
    """Return the image's name on the nodes, and the commit that it is built from if it is."""
    if container.build is None:
        return container.image, None
    ref = f"{container.build.ref}^{{commit}}"
    commit = _git(container.build, "rev-parse", "--verify", "--end-of-options", ref)
    return built_name(container.image, commit), commit


def _build(
    node: Node,
    runtime: Sequence[str],
    name: str,
    build: Build,
    commit: str,
    workdir: str,
) -> None:
    """Build from the files of a commit, which are sent to the node and removed afterwards."""
    folder = f"{workdir}/images/{commit}"
    archive = f"{folder}.tar"
    with tempfile.TemporaryDirectory() as here:
        local = Path(here) / "context.tar"
        _git(build, "archive", "--format=tar", f"--output={local}", commit)
        node.put(local, archive)
    try:
        _do(node, ["mkdir", "-p", folder], "making a folder")
        _do(node, ["tar", "-x", "-f", archive, "-C", folder], "unpacking the commit")
        argv = build_argv(runtime, name, build, commit, folder)
        _do(node, argv, f"building the image {name}")
    finally:
        node.run(["rm", "-rf", folder, archive], timeout_s=SHORT_S)
