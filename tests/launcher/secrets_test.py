# SPDX-License-Identifier: Apache-2.0
"""Secrets of a job with a mark in them, on every way out of the launcher."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import Result, Tree, make_trees
from runners import MPI, needs_mpirun

MARK = "CANARY"
PRIVATE_KEY = f"-----BEGIN KEY-----\n{MARK}Line1\n{MARK}Line2\n-----END KEY-----"
# Each value in one of the forms in which a job names its secrets.
HYPERPARAMETERS = [
    f"api_key={MARK}1",
    f"encryption_key={MARK}2",
    f"db_pass={MARK}3",
    f"passphrase={MARK} of words",
    f"wandbKey={MARK}4",
    f"auth={MARK}:5",
    f'session_cookie=sid="{MARK}6"',
    f"sentry_dsn=https://{MARK}7@sentry/1",
    f"storage_sas=sv=1&sig={MARK}8",
    f"store=AccountName=a;AccountKey={MARK}9",
    f"db_url=postgres://u:{MARK}10@h/db",
    f"mirror=git+https://{MARK}11@h/code",
    f"licence={MARK}12",
    "hub=" + json.dumps({"auth": {"token": f"{MARK}13"}, "password": f"{MARK}14,REST"}),
    "credentials=" + json.dumps([f"{MARK}15", {"any": f"{MARK}16"}]),
    f"extra=--password '{MARK} 17' --lr 1",
    f"service=https://h/?lr=1&token={MARK}18&x=1",
    f"sagemaker_mpi_custom_mpi_options=-x API_KEY={MARK}19,REST -x LR=1",
    "private_key=" + json.dumps(PRIVATE_KEY),
]
VARIABLES = {
    "WANDB_API_KEY": f"{MARK}20",
    "DB_PWD": f"{MARK}21",
    "SERVICE": json.dumps({"bearer": f"{MARK}22"}),
    "SM_LAUNCH_SECRETS": "licence, other",
}
# Says all that it knows, alone and as it was told it, and dies with it on its lips.
TELL_TALE = """
    import json, os, sys
    def tell(value):
        if isinstance(value, dict):
            for one in value.values(): tell(one)
        elif isinstance(value, list):
            for one in value: tell(one)
        else:
            print("it is", value)
            print(repr(value), json.dumps(value), file=sys.stderr)
    known = json.loads(os.environ["SM_HPS"])
    tell(known)
    for name in os.environ: print(f"{name}={os.environ[name]}")
    print(sys.argv, file=sys.stderr)
    print("step 1: loss 0.5 all told", flush=True)
    raise ValueError(f"{known}")
"""


def marks(text: str) -> list[str]:
    return [line for line in text.splitlines() if MARK in line]


def outputs(tree: Tree) -> dict[str, list[str]]:
    """The lines with a mark in each file that the job left for others."""
    files = [path for path in (tree.base / "output").rglob("*") if path.is_file()]
    return {str(path): marks(path.read_text()) for path in files}


def assert_clean(result: Result) -> None:
    assert marks(result.out) == []
    assert marks(result.err) == []


@pytest.mark.parametrize(
    "runner", [[], pytest.param(MPI, marks=needs_mpirun)], ids=["process", "mpi"]
)
def test_no_way_out_shows_a_secret(folder, run, runner):
    [tree] = make_trees(folder, TELL_TALE, hyperparameter=HYPERPARAMETERS + runner)

    for question in (["--plan"], ["--plan", "--json"], ["--doctor"], ["--doctor", "--json"]):
        answer = run(tree, *question, **VARIABLES)
        assert_clean(answer)
        assert answer.out
    result = run(tree, SM_LOG_LEVEL="10", **VARIABLES)

    assert result.code == 1
    assert_clean(result)
    assert "all told" in result.out
    assert "it is ******\n" in result.out
    left = outputs(tree)
    assert not any(left.values()), left
    names = {Path(path).name for path in left}
    assert names >= {"failure", "report.html", "log-algo-1.jsonl", "host-algo-1.jsonl"}
    assert "ValueError" in tree.failure
    page = folder / "again.html"
    assert_clean(run(tree, "--report", "--output", str(page), **VARIABLES))
    assert marks(page.read_text()) == []


@pytest.mark.parametrize(
    ("hyperparameters", "words"),
    [
        ([f"sagemaker_mpi_custom_mpi_options=-x API_KEY={MARK}1 'open", *MPI], "does not close"),
        ([f"mp_parameters=partitions=2,api_key={MARK}2", *MPI], "lists the known ones"),
        ([f"token={MARK}3", f"sagemaker_s3_output=ftp://u:{MARK}3@h/x"], "sagemaker_s3_output"),
    ],
)
def test_errors_before_there_is_a_plan_show_none(folder, run, hyperparameters, words):
    [tree] = make_trees(folder, "", hyperparameter=hyperparameters)

    for arguments in ([], ["--plan"]):
        result = run(tree, *arguments)

        assert result.code == 1
        assert words in result.err
        assert_clean(result)
    assert words in tree.failure
    assert marks(tree.failure) == []


def test_an_installation_shows_none(folder, run):
    requirements = f"--index-url https://u:{MARK}1@localhost:9/simple\nnone-such\n"
    [tree] = make_trees(folder, "", files={"requirements.txt": requirements})

    result = run(tree, PIP_RETRIES="0", PIP_EXTRA_INDEX_URL=f"http://{MARK}2@localhost:9/")

    assert result.code == 1
    assert_clean(result)
    assert marks(tree.failure) == []


def test_what_is_no_secret_is_passed_on_as_it_is(folder, run):
    words = ["true", "x", "1", "100000", "0.00001", "caption"]
    parameters = ["api_key=x", "token=true", "password=1", "pwd=100000", "label_key=caption"]
    [tree] = make_trees(folder, f"print({' '.join(words)!r})", hyperparameter=parameters)

    result = run(tree, PASSWORD="1.5e-3")

    assert result.out.splitlines() == [" ".join(words)]
    assert "--label_key '******' --password '******' --pwd '******' --token '******'" in result.err
