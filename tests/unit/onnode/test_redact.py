"""Secrets never reach a record; what is none stays readable."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import redact
from servemap.onnode.redact import REDACTED, hide, redact_text, redact_value, redact_variable

TAIL = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "VLLM_APIKEY", "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYSQL_PASSWD", "NCCL_AUTH", "CUDA_AUTH_TOKENS",
        "GIT_CREDENTIALS", "api_key", "SESSION_COOKIE", "SSH_KEYS", "GITHUB_PAT",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert redact_variable(name, "innocent-looking") == REDACTED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("VLLM_MAX_NUM_BATCHED_TOKENS", "8192"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1"),
        ("CUDA_VISIBLE_DEVICES", "0,1,2"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("VLLM_KEYBOARD", "us"),
        ("HTTP_PROXY", "http://proxy.example:3128"),
        ("VLLM_CACHE", "/home/sk-team/hf_home"),
        ("HF_TOKEN", ""),
    ],
)
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    assert redact_variable(name, value) == value


@pytest.mark.parametrize("name", ["PASSWORD", "AUTH_TOKEN"])
def test_secret_of_digits_only_is_one_too(name: str) -> None:
    assert redact_variable(name, "123456") == REDACTED


@given(
    TAIL,
    st.sampled_from(
        [
            "hf_{}", "sk-{}", "sk-proj-{}", "ghp_{}", "github_pat_{}", "glpat-{}", "nvapi-{}",
            "AIza{}", "Bearer {}", "Authorization: Basic {}", "https://user:{}@host/path",
            "http://{}@host", "--api-key {}", "--api-key={}", "--hf-token '{}'", "-e HF_TOKEN={}",
            "MY_SECRET={}", "--admin-api-key \"{}\"", "eyJ{0}.{0}.{0}",
        ]
    ),
    st.sampled_from(["{}", "x {} y", '["{}"]', "a={}"]),
)  # fmt: skip
def test_secret_is_gone_wherever_it_stands(secret: str, shape: str, around: str) -> None:
    text = around.format(shape.format(secret))
    assert secret not in redact_text(text)
    assert secret not in redact_variable("NCCL_ANYTHING", text)


def test_private_key_is_gone_to_its_end() -> None:
    text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nxyz\n-----END RSA PRIVATE KEY-----\nb"
    assert redact_text(text) == f"a\n{REDACTED}\nb"


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve /models/x --max-tokens 512 --tokenizer /models/x --port 8000",
        "root=UUID=1234 console=ttyS0 quiet",
        "python -m sglang.launch_server --tp 8 --kv-cache-dtype fp8",
        "GPU 0: NVIDIA H100 (UUID: GPU-1a2b3c)",
    ],
)
def test_ordinary_command_lines_stay(text: str) -> None:
    assert redact_text(text) == text


@given(st.text())
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


def test_values_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_hidden", set())
    monkeypatch.setattr(redact, "_hidden_pattern", None)
    value = 'quiet "and" known'
    text = f"cannot log in with {value}: {json.dumps(value)}, plain, short"
    assert redact_text(text) == text
    hide([value, "short", "first line\nsecond line\n", ""])
    assert redact_text(text) == f'cannot log in with {REDACTED}: "{REDACTED}", plain, short'
    assert redact_text("said: second line.") == f"said: {REDACTED}."
    record = {"a": [value, 1, None, {value: (value,)}]}
    assert redact_value(record) == {"a": [REDACTED, 1, None, {REDACTED: [REDACTED]}]}
