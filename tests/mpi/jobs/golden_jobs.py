# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_golden_checkpoints.py: they resume from checkpoints of all versions.

It also wrote those of Python scripts, with nothing but public names, so that any version can:

    mpirun -np RANKS python tests/mpi/jobs/golden_jobs.py FOLDER COMMIT FORM...

Where COMMIT is an older one, files are made to be as its own source wrote them: see `OLDER`. Forms
`cpp_…` are files of tests/golden_checkpoints/program; of them it writes what they have to hold.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

STEPS = 3
BASE = {"ddp": True, "microbatches": 2, "auto_partition": False, "default_partition": 0,
        "sdp_param_persistence_threshold": 0, "sdp_gradient_clipping": 0}  # fmt: skip
PIPELINE = {"partitions": 2}
TENSOR = {"tensor_parallel_degree": 2}
SHARDED = {"sharded_data_parallel_degree": 2}
OPTIMIZER = {"shard_optimizer_state": True}
#: Ranks, settings, and whether layers are marked for tensor parallelism.
COMPOSITIONS: dict[str, tuple[int, dict[str, Any], bool]] = {
    "one": (1, {}, False),
    "replaced": (1, {}, True),
    "pipeline": (2, PIPELINE, False),
    "tensor": (2, TENSOR, True),
    "pipeline_tensor": (4, {**PIPELINE, **TENSOR}, True),
    "sharded": (2, SHARDED, False),
    "persistent": (2, {**SHARDED, "sdp_param_persistence_threshold": 7}, False),
    "optimizer": (2, OPTIMIZER, False),
    "pipeline_optimizer": (4, {**PIPELINE, **OPTIMIZER}, False),
    "tensor_sharded": (4, {**TENSOR, **SHARDED}, True),
    "tensor_optimizer": (4, {**TENSOR, **OPTIMIZER}, True),
}
#: Composition of a form, and how it differs from a plain one.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "one": ("one", {}),
    "replaced": ("replaced", {}),
    "pipeline": ("pipeline", {}),
    "tensor": ("tensor", {}),
    "pipeline_tensor": ("pipeline_tensor", {}),
    "sharded": ("sharded", {}),
    "persistent": ("persistent", {}),
    "optimizer": ("optimizer", {}),
    "pipeline_optimizer": ("pipeline_optimizer", {}),
    "tensor_sharded": ("tensor_sharded", {}),
    "tensor_optimizer": ("tensor_optimizer", {}),
    "fp16": ("one", {"precision": "fp16"}),
    "fp16_optimizer": ("optimizer", {"precision": "fp16"}),
    "bf16_sharded": ("sharded", {"precision": "bf16"}),
    "bf16_tensor": ("tensor", {"precision": "bf16"}),
    "whole": ("pipeline", {"partial": False}),
    "whole_tensor": ("tensor", {"partial": False}),
    "adafactor": ("optimizer", {"kind": "Adafactor"}),
    "sgd": ("pipeline_optimizer", {"kind": "SGD"}),
    "two_optimizers": ("pipeline", {"optimizers": 2}),
    "two_optimizers_sharded": ("sharded", {"optimizers": 2}),
    "no_optimizer_sharded": ("sharded", {"optimizers": 0}),
    "cpp_one": ("one", {}),
    "cpp_pipeline": ("pipeline", {"kind": "SGD"}),
    "cpp_sharded": ("sharded", {}),
    "cpp_optimizer": ("pipeline_optimizer", {"precision": "bf16"}),
    "cpp_fp16": ("persistent", {"precision": "fp16"}),
}
CONTENT = {"steps": STEPS, "names": ["a", "b"], "rate": 0.5, "order": torch.tensor([2, 0, 1])}
#: Three good steps after the save double a scale that had one before it; an overflow halves one
#: that has forgiven an overflow already.
SCALES = {"dynamic_loss_scale": True, "dynamic_loss_args": {
    "init_scale": 64, "scale_window": 4, "delayed_shift": 2}}  # fmt: skip


class Scale(nn.Module):
    """A frozen parameter, and a count of samples."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.seen += x.shape[0]
        return x * self.weight


def network(marked: bool) -> nn.Module:
    """Parameters of odd sizes, one of them shared and one frozen, and a buffer."""
    with smp.tensor_parallelism(enabled=marked):
        layers: list[nn.Module] = [nn.Embedding(5, 4), nn.Linear(4, 6)]
    shared = [nn.Linear(3, 3, bias=False) for _ in range(2)]
    shared[1].weight = shared[0].weight
    model = nn.Sequential(*layers, Scale(6), nn.Linear(6, 3), *shared, nn.Linear(3, 1))
    if smp.pp_size() > 1:
        for layer in list(model)[3:]:
            smp.set_partition(layer, 1)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.copy_(torch.randint(-16, 17, parameter.shape, generator=generator) / 16)
    return model


def optimizers_of(model: Any, kind: str, count: int, lr: float) -> list[tuple[Any, list[str]]]:
    """Two groups, in one optimizer or one each; with the names of the parameters."""
    names: list[list[str]] = [[], []]
    groups: list[dict[str, Any]] = [{"params": [], "lr": lr}, {"params": [], "lr": 2 * lr}]
    for name, parameter in model.named_parameters():
        number = int(name.endswith("bias"))
        names[number].append(name)
        groups[number]["params"].append(parameter)
    cls = getattr(torch.optim, kind)
    more = {"momentum": 0.75} if kind == "SGD" else {}
    if count == 2:
        return [(cls([group], **more), own) for group, own in zip(groups, names, strict=True)]
    return [(cls(groups, **more), [*names[0], *names[1]])][:count]


def made(
    marked: bool, kind: str = "AdamW", optimizers: int = 1, lr: float = 0.125, **arguments: Any
):
    model = smp.DistributedModel(network(marked))
    wrapped = [(smp.DistributedOptimizer(one, **arguments), names)
               for one, names in optimizers_of(model, kind, optimizers, lr)]  # fmt: skip
    return model, wrapped


@smp.step
def train_step(model, ids, factor):
    difference = model(ids).float() - (ids % 3).unsqueeze(-1)
    loss = (difference * difference).mean() * factor.mean()
    model.backward(loss)
    return loss


@smp.step
def evaluate(model, ids):
    return model(ids)


def train(model: Any, wrapped: Any, steps: list[int], spoiled: int = -1) -> list[float]:
    """The loss scale after each step; the gradients of one overflow."""
    scales = []
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + smp.dp_rank())
        ids = torch.randint(0, 5, (4, 2), generator=generator)
        for optimizer, _ in wrapped:
            optimizer.zero_grad()
        train_step(model, ids, torch.full((4,), float("inf") if step == spoiled else 1.0))
        for optimizer, _ in wrapped:
            optimizer.step()
        scales += [float(optimizer.loss_scale) for optimizer, _ in wrapped[:1]]
    return scales


def plain(value: Any) -> Any:
    """For JSON. Nine digits tell all numbers of 32 bits apart."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def state_of(model: Any, wrapped: Any) -> dict[str, Any]:
    """The whole state, by names; collective."""
    entries = {name: plain(value) for name, value in model.state_dict().items()}
    masters: dict[str, Any] = {}
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer, names in wrapped:
        whole = optimizer.state_dict()
        for number, fields in whole["state"].items():
            state[names[number]] = {key: plain(value) for key, value in sorted(fields.items())}
        for number, master in whole.get("_smp_masters", {}).items():
            masters[names[number]] = plain(master)
        for group in whole["param_groups"]:
            known = {key: group[key] for key in ("lr", "weight_decay", "betas", "momentum")
                     if key in group}  # fmt: skip
            groups.append({**known, "params": [names[number] for number in group["params"]]})
    return {"model": entries, "masters": masters, "state": state, "groups": groups}


def resume(
    folder: str,
    marked: bool,
    partial: bool = True,
    load_optimizer: bool = True,
    first: int = 0,
    scaled: bool = False,
    **arguments: Any,
) -> dict[str, Any]:
    """State after the checkpoint was loaded into a model that had its first steps, or none."""
    model, wrapped = made(marked, lr=7.0, **(SCALES if scaled else {}), **arguments)
    train(model, wrapped, list(range(50, 50 + first)))

    def load() -> Any:
        return smp.resume_from_checkpoint(
            folder, "golden", partial=partial, load_optimizer=load_optimizer
        )

    content = load()
    model.eval()
    with torch.no_grad():
        evaluate(model, torch.zeros(4, 2, dtype=torch.int64))  # decides on the partition
    model.train()
    found = {**state_of(model, wrapped), "content": {k: plain(v) for k, v in content.items()}}
    if scaled:
        found["scales"] = [train(model, wrapped, [3, 4, 5])]
        load()
        found["scales"].append(train(model, wrapped, [3], spoiled=3))
    return found


#: Names given to smp.save and smp.load, and how the file of a rank is chosen.
NAMES: dict[str, dict[str, Any]] = {
    "whole": {"partial": False},
    "part": {},
    "third": {"v3": True},
}


def own_object() -> dict[str, Any]:
    ranks = {"pp": smp.pp_rank(), "tp": smp.tp_rank(), "rdp": smp.rdp_rank()}
    return {**ranks, "values": torch.arange(3)}


def load_objects(folder: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Objects that smp.load reads by each name, and those that it is to read."""
    found = []
    for name, arguments in NAMES.items():
        partial = arguments.get("partial", True)
        wanted = own_object() if partial else {**own_object(), "pp": 0, "tp": 0, "rdp": 0}
        found.append((smp.load(f"{folder}/{name}", partial=partial), wanted))
    return found


# --- The writer ---


def save_objects(folder: Path, composition: str) -> None:
    smp.init({**BASE, **COMPOSITIONS[composition][1]})
    folder.mkdir(exist_ok=True)
    for name, arguments in NAMES.items():
        if smp.rank() == 0 or name != "whole":
            smp.save(own_object(), str(folder / name), **arguments)
    smp.barrier()
    if smp.rank() == 0:
        pack(folder)
    smp.shutdown()


def text_of(expected: dict[str, Any]) -> str:
    """A tensor a line."""
    lines = []
    for key, value in expected.items():
        if isinstance(value, dict) and value:
            inner = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items()]
            lines.append(f" {json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n }")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(form: str, folder: Path, commit: str) -> None:
    composition, how = FORMS[form]
    how = dict(how)
    _, settings, marked = COMPOSITIONS[composition]
    precision, partial = how.pop("precision", None), how.pop("partial", True)
    smp.init({**BASE, **settings, **({precision: True} if precision else {})})
    scaled = precision == "fp16"
    model, wrapped = made(marked, **(SCALES if scaled else {}), **how)
    train(model, wrapped, list(range(STEPS)), spoiled=1 if scaled else -1)
    in_cpp = form.startswith("cpp_")
    if not in_cpp:
        smp.save_checkpoint(str(folder), "golden", partial=partial, user_content=CONTENT)
    trained = state_of(model, wrapped)
    if in_cpp:
        smp.resume_from_checkpoint(str(folder), "golden")
        found = state_of(model, wrapped)
        check_alike(found, trained, 0.05 if precision else 1e-5)
        trained = found
    if commit in OLDER:
        smp.barrier()
        make_older(folder / "golden_partial", commit, wrapped)
    expected = {
        "written_by": commit,
        "composition": composition,
        "how": FORMS[form][1],
        "content": {key: plain(value) for key, value in CONTENT.items()},
        **trained,
    }
    if scaled:
        first = wrapped[0][0].loss_scale
        expected["scales"] = [[first, first, 2 * first], [first / 2]]
    if smp.rank() == 0:
        folder.with_suffix(".json").write_text(text_of(expected))
        pack(folder)
    smp.shutdown()


def check_alike(one: Any, other: Any, tolerance: float) -> None:
    """Asserts that C++ computed what this script did, but for the last bits of its precision."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, (list, tuple)):
        for left, right in zip(one, other, strict=True):
            check_alike(left, right, tolerance)
    elif isinstance(one, float):
        assert abs(one - other) <= tolerance * (1 + abs(other)), (one, other)
    else:
        assert one == other


def pack(folder: Path) -> None:
    """Leaves the checkpoint as an archive: an eighth of the size."""

    def without_times(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(folder.with_suffix(".tar.xz"), "w:xz", preset=9) as archive:
        for path in sorted(folder.iterdir()):
            if path.name != "newest":
                archive.add(path, path.name, filter=without_times)
    shutil.rmtree(folder)


#: Parts that files of older commits, each the first or the last of its form, do not have: the class
#: of the optimizer; ``slices.json``, or its format 2; masters laid out evenly (format 2); and keys
#: of shards and of the rest of a sharded model.
OLDER: dict[str, set[str]] = {
    "c98c7bcb": {"kind"},
    "8b3a4a12": {"kind", "slices"},
    "ee606047": {"kind", "format", "shared", "tied"},
    "d535c395": {"kind", "format", "slices format"},
    "9b6f948e": {"format", "slices format"},
    "c833a23c": {"format"},
}


def make_older(folder: Path, commit: str, wrapped: Any) -> None:
    """By all ranks. In state dicts of ranks masters lie as they did in files of format 1."""
    without = OLDER[commit]
    dropped = [{"kind": "optimizer"}.get(name, name) for name in without] + ["_smp_is_partial"]
    own = wrapped[0][0].local_state_dict(gather_if_shard=False)
    if "format" in without and "parameters" in own and smp.rdp_rank() < own["partition_count"]:
        short = (folder / "model_0.pt").exists()
        part = "" if short else f"{smp.pp_rank()}_{smp.tp_rank()}_"
        own = {key: value for key, value in own.items() if key not in dropped}
        torch.save(own, folder / f"optimizer_{part}{own['rank']}.pt")
    smp.barrier()
    if smp.rank() == 0:
        for file in folder.glob("*.pt"):
            content = torch.load(file)
            for key in ("_smp_optimizer" if "kind" in without else "", *dropped[:-1]):
                if file.stem != "user_content" and isinstance(content, dict):
                    content.pop(key, None)
            torch.save(content, file)
        slices = folder / "slices.json"
        if "slices format" in without and slices.exists():
            axes = json.loads(slices.read_text())["axes"]
            slices.write_text(json.dumps({"axes": axes}, indent=1, sort_keys=True) + "\n")
        elif "slices" in without:
            slices.unlink()
        sign(folder)
    smp.barrier()


def sign(folder: Path) -> None:
    """Makes the manifest that of the files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {
        name: {"bytes": (folder / name).stat().st_size,
               "crc32c": f"{crc32c((folder / name).read_bytes()):08x}"}
        for name in manifest["files"] if (folder / name).exists()
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def crc32c(data: bytes) -> int:
    """
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    for name in sys.argv[3:]:
        if name.startswith("objects_"):
            save_objects(Path(sys.argv[1]) / name, name.removeprefix("objects_"))
        else:
            write(name, Path(sys.argv[1]) / name, sys.argv[2])
