"""One rank of a torch baseline: `torch_ranks.py PLAN`, started by torchrun on a node.

PLAN (JSON): `{"operations", "sizes", "iterations", "warmup", "timeout_s", "address"}`. A size is
that of the largest buffer of a rank, in bytes, as nccl-tests counts it: what every rank holds for
all_reduce and all_to_all, what all have together for all_gather and reduce_scatter. It is rounded
down to a multiple of the ranks' number. NCCL is used where CUDA (or ROCm) is, else gloo.

It runs under the interpreter of an engine: no import of ours, Python 3.8. Each line that matters is
`servemap-rank ` and a JSON object, written at once: who the rank is, then of each operation and
size `{"rank", "operation", "size_bytes", "count", "type", "times_ns", "wrong"}`, then `done` or
`error`. A time begins when the rank calls the operation and ends when its result is there.
"""

import datetime
import fcntl
import json
import os
import platform
import socket
import struct
import sys
import time
from typing import Any, Callable, Dict, Optional, Tuple

SIOCGIFADDR = 0x8915  # netdevice(7)
BYTES = 4

Work = Tuple[Any, Callable[[], Any], Any, Any]


def say(**facts: Any) -> None:
    """Write one line, whole."""
    line = "servemap-rank %s\n" % json.dumps(facts, separators=(",", ":"))
    sys.stdout.flush()
    os.write(1, line.encode())


def interface_of(address: str) -> Optional[str]:
    """Return the interface that has an IPv4 address; None where none has it."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


class Collectives:
    """The operations of a plan on tensors of one size, and how their results have to be."""

    def __init__(self, torch: Any, count: int, device: Any) -> None:
        self.torch = torch
        self.dist = torch.distributed
        self.world = self.dist.get_world_size()
        self.rank = self.dist.get_rank()
        self.count = count
        self.part = count // self.world
        self.device = device

    def pattern(self, start: int, count: int) -> Any:
        """Return what a rank with number 0 holds; small whole numbers, whose sums are exact."""
        place = self.torch.arange(start, start + count, device=self.device)
        return (place % 7).to(self.torch.float32)

    def _newest(self, *names: str) -> Any:
        """Return the first of some functions that this torch has: they were renamed in 2.13."""
        return next(getattr(self.dist, name) for name in names if hasattr(self.dist, name))

    def all_reduce(self) -> Work:
        """Return the data, the call and the expected result of a sum over all ranks."""
        data = self.pattern(0, self.count) + self.rank
        return data, lambda: self.dist.all_reduce(data), data, self.summed(0, self.count)

    def all_gather(self) -> Work:
        """As all_reduce, of putting the parts of all ranks together."""
        call = self._newest("all_gather_single", "all_gather_into_tensor")
        data = self.pattern(0, self.part) + self.rank
        out = self.torch.empty(self.count, device=self.device)
        parts = [self.pattern(0, self.part) + rank for rank in range(self.world)]
        return data, lambda: call(out, data), out, self.torch.cat(parts)

    def reduce_scatter(self) -> Work:
        """As all_reduce, of each rank's part of the sum."""
        call = self._newest("reduce_scatter_single", "reduce_scatter_tensor")
        data = self.pattern(0, self.count) + self.rank
        out = self.torch.empty(self.part, device=self.device)
        return data, lambda: call(out, data), out, self.summed(self.rank * self.part, self.part)

    def all_to_all(self) -> Work:
        """As all_reduce, of a part from each rank to each."""
        data = self.pattern(0, self.count) + self.rank
        out = self.torch.empty(self.count, device=self.device)
        mine = self.pattern(self.rank * self.part, self.part)
        parts = [mine + rank for rank in range(self.world)]
        return data, lambda: self.dist.all_to_all_single(out, data), out, self.torch.cat(parts)

    def summed(self, start: int, count: int) -> Any:
        """Return the sum over all ranks of a stretch of what each holds."""
        return self.pattern(start, count) * self.world + self.world * (self.world - 1) // 2


def measure(torch: Any, plan: Dict[str, Any], operation: str, size: int, device: Any) -> None:
    """Warm an operation up, time its iterations, check one result; say it."""
    world = torch.distributed.get_world_size()
    count = size // BYTES // world * world
    work = Collectives(torch, count, device)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    # Repeated sums of zeros stay zero, where other numbers would overflow.
    data, call, _, _ = getattr(work, operation)()
    data.zero_()
    times = []
    for turn in range(plan["warmup"] + plan["iterations"]):
        if turn == plan["warmup"]:
            torch.distributed.barrier()
        wait()
        begun = time.perf_counter_ns()
        call()
        wait()
        if turn >= plan["warmup"]:
            times.append(time.perf_counter_ns() - begun)
    _, call, out, expected = getattr(work, operation)()
    call()
    wait()
    say(
        rank=work.rank,
        operation=operation,
        size_bytes=count * BYTES,
        count=count,
        type="float32",
        times_ns=times,
        wrong=int((out != expected).sum().item()),
    )


def version_text(value: Any) -> Any:
    """Return a version that may be a tuple as text; None where there is none."""
    return ".".join(map(str, value)) if isinstance(value, tuple) else value


def main() -> int:
    """Run the plan; every rank does."""
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    plan = json.loads(sys.argv[1])
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        say(rank=rank, error="%s has no torch: %s" % (sys.executable, error))
        return 1
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    name = interface_of(plan["address"])
    if not cuda and name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    try:
        if cuda:
            torch.cuda.set_device(device)
        limit = datetime.timedelta(seconds=plan["timeout_s"])
        dist.init_process_group("nccl" if cuda else "gloo", timeout=limit)
        say(
            rank=rank,
            world=dist.get_world_size(),
            local_rank=local,
            host=socket.gethostname(),
            pid=os.getpid(),
            backend=dist.get_backend(),
            device=str(device),
            name=torch.cuda.get_device_name(device) if cuda else platform.machine(),
            interface=os.environ.get("NCCL_SOCKET_IFNAME" if cuda else "GLOO_SOCKET_IFNAME"),
            torch=torch.__version__,
            nccl=version_text(torch.cuda.nccl.version()) if cuda else None,
            cuda=torch.version.cuda or torch.version.hip,
            python=platform.python_version(),
        )
        for operation in plan["operations"]:
            for size in plan["sizes"]:
                measure(torch, plan, operation, size, device)
        # Nobody leaves while another one still needs it.
        dist.barrier()
        dist.destroy_process_group()
    # Whatever a rank dies of is what its baseline says.
    except Exception as error:  # noqa: BLE001
        say(rank=rank, error=("%s: %s" % (type(error).__name__, error))[:1000])
        return 1
    say(rank=rank, done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
