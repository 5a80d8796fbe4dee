"""A site folder to patch, and a node that patches it."""

from pathlib import Path

import pytest

from .patch_node import InProcessNode
