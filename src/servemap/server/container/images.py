"""The images of a campaign's containers on its nodes: frozen, made present, compared."""

from collections.abc import Mapping
from typing import Any

from servemap.model import results
from servemap.model.attempts import read_json
from servemap.model.server_spec import Container
from servemap.nodes.parallel import each
from servemap.server.container.command import runtime_argv
from servemap.server.container.image import Image, check_images, ensure_image, find_image
from servemap.server.context import Context
from servemap.server.gates.checks import Check
from servemap.server.not_run import NotRunError


def images_there(context: Context, node_id: str) -> dict[str, dict[str, Any]]:
    """Return {name: record} of the images that the campaign's servers need and a node has.

    Raises:
        ConfigError: there is no such commit to build.
        LaunchError: the runtime there does not say.
        NodeError: the node did not do its part.
    """
    found = {}
    for variant in context.plan.variants:
        container = context.server(variant).container
        if container is None or node_id not in context.plan.nodes_of(variant):
            continue
        runtime = runtime_argv(container, become=context.node_spec(node_id).become)
        image = find_image(context.nodes[node_id], container, runtime)
        if image is not None:
            found[image.name] = image.record()
    return found


def present_images(context: Context, variant: str, container: Container) -> dict[str, Image]:
    """Make a container's image present on all nodes of a variant; return it by node.

    Raises:
        ConfigError: there is no such commit to build.
        LaunchError: the image is not there and may or can not be brought there.
        NodeError: a node did not do its part.
    """

    def ensure(node_id: str) -> Image:
        runtime = runtime_argv(container, become=context.node_spec(node_id).become)
        return ensure_image(
            context.nodes[node_id], container, runtime, workdir=context.workdir(node_id)
        )

    return each(context.plan.nodes_of(variant), ensure)


def image_check(context: Context, images: Mapping[str, Image]) -> list[Check]:
    """Check that all nodes have the same image, and the one that was frozen.

    Raises:
        NotRunError: they have not, and `policy.on_drift` is `refuse`.
    """
    frozen = {node_id: _frozen(context, node_id, image) for node_id, image in images.items()}
    check = check_images(images, frozen)
    if check.ok is False and context.policy.on_drift == "refuse":
        raise NotRunError("drift", check.evidence, "server.container.image", check.remedy)
    if check.ok is False:
        return [Check(check.name, None, f"marked, they differ: {check.evidence}", check.remedy)]
    return [check]


def _frozen(context: Context, node_id: str, image: Image) -> dict[str, Any] | None:
    data = read_json(results.freeze_file(context.run, node_id)) or {}
    images = data.get("images")
    record = images.get(image.name) if isinstance(images, dict) else None
    return record if isinstance(record, dict) else None
